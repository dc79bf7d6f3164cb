"""PPO with TRL (0.12 to 1.12) on one GPU or a CPU: a reward model says how good a completion is.

    pip install git+https://github.com/rlexporter/rlexporter 'trl>=0.12,<=1.12'
    python ppo.py --model my/model --reward-model my/reward-model

The two need one tokenizer; the reward model has one label. The critic begins as a copy of the reward model.
Open http://127.0.0.1:9750/ to see how the run goes.
"""

from __future__ import annotations

import argparse

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import rlexporter

try:
    from trl.experimental.ppo import PPOConfig, PPOTrainer
except ImportError:  # before trl 1.0
    from trl import PPOConfig, PPOTrainer

PROMPTS = (
    "Write a friendly greeting:",
    "Describe your favourite meal:",
    "Explain why the sky is blue:",
    "Give a tip for a good night's sleep:",
)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--reward-model", required=True)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="completions an update")
    parser.add_argument("--length", type=int, default=32, help="tokens a completion")
    parser.add_argument("--out", default="ppo-out")
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    prompts = [{"input_ids": tokenizer(PROMPTS[i % len(PROMPTS)])["input_ids"]} for i in range(512)]
    trainer = PPOTrainer(
        args=PPOConfig(
            output_dir=options.out,
            total_episodes=options.updates * options.batch,
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=1,
            num_mini_batches=2,
            num_ppo_epochs=2,
            response_length=options.length,
            stop_token="eos",
            missing_eos_penalty=1.0,
            learning_rate=3e-6,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            kl_coef=0.05,
            num_sample_generations=0,
            save_strategy="no",
            report_to="none",
        ),
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(options.model),
        ref_model=AutoModelForCausalLM.from_pretrained(options.model),
        reward_model=AutoModelForSequenceClassification.from_pretrained(options.reward_model, num_labels=1),
        value_model=AutoModelForSequenceClassification.from_pretrained(options.reward_model, num_labels=1),
        train_dataset=Dataset.from_list(prompts),
    )
    rlexporter.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
