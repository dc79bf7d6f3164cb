"""GRPO with TRL on one GPU, or on a CPU: the model learns to add two numbers, and rlexporter shows how it goes.

    pip install git+https://github.com/rlexporter/rlexporter trl
    python grpo.py                                   # Qwen2.5 0.5B, from the Hugging Face Hub
    python grpo.py --model my/model --steps 500      # any causal language model, by name or folder

Then open http://127.0.0.1:9750/: it says whether the run is fine. /metrics is for Prometheus.
"""

from __future__ import annotations

import argparse
import random
import re

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import rlexporter


def sums(count: int) -> Dataset:
    """Return ``count`` prompts, and the answer to each, which reward functions get as an argument."""
    draw = random.Random(0)
    pairs = [(draw.randint(1, 99), draw.randint(1, 99)) for _ in range(count)]
    return Dataset.from_list(
        [{"prompt": f"What is {a} + {b}? Answer with the number only.\n", "answer": a + b} for a, b in pairs]
    )


def correct(completions: list[str], answer: list[int], **_: object) -> list[float]:
    """Reward 1 where the first number is the right one, else 0."""
    found = [re.search(r"\d+", text) for text in completions]
    return [float(bool(each) and int(each[0]) == right) for each, right in zip(found, answer, strict=True)]


def brief(completions: list[str], **_: object) -> list[float]:
    """Reward 0.2 for an answer of at most eight characters."""
    return [0.2 if len(text.strip()) <= 8 else 0.0 for text in completions]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="completions a step on each GPU")
    parser.add_argument("--out", default="grpo-sums")
    options = parser.parse_args()

    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=[correct, brief],
        train_dataset=sums(1000),
        args=GRPOConfig(
            output_dir=options.out,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            num_generations=min(8, options.batch),
            max_completion_length=16,
            learning_rate=1e-6,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            beta=0.02,  # without it there is no KL to watch
            num_iterations=2,  # two updates a batch: from the second on the ratio is not 1
            logging_steps=1,
            save_steps=50,
            report_to="none",
        ),
    )
    rlexporter.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
