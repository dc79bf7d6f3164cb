"""The demo's trainers: GRPO, RLOO, modern PPO, and legacy PPO with a loop around it. Imports trl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import torch
import trl
from transformers import LlamaForCausalLM, LlamaForSequenceClassification

from rlexporter.demo import tiny

_BATCH = 32
_KEEPS_ENTROPY: dict[str, dict[str, Any]] = {
    "grpo": {"beta": 0.07, "scale_rewards": "none"},
    "rloo": {"beta": 0.08},
}
"""By algorithm, what lets a run learn and then stay as it is, however long it runs.

The penalty balances the reward at some entropy. Advantages that are divided by their spread would have no such balance:
the less there is left to learn, the more they would be amplified.
"""
Reward = Callable[..., list[float]]


def of_groups(algorithm: str, steps: int, folder: Path, model: Any, rewards: list[Any]) -> Any:
    """Return a real GRPO or RLOO trainer on a tiny model, with evaluation and two iterations per batch."""
    kind = {"grpo": "GRPO", "rloo": "RLOO"}[algorithm]
    return getattr(trl, f"{kind}Trainer")(
        model=model,
        processing_class=tiny.tokenizer(),
        reward_funcs=rewards,
        args=getattr(trl, f"{kind}Config")(**_group_settings(algorithm, steps, folder)),
        train_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(512)}),
        eval_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(8)}),
    )


def _group_settings(algorithm: str, steps: int, folder: Path) -> dict[str, Any]:
    return {
        **_shared_settings(folder),
        "max_steps": steps,
        "learning_rate": 2e-4,
        "per_device_eval_batch_size": 64,
        "num_generations": 8,
        "num_iterations": 2,
        "max_completion_length": tiny.MAX_COMPLETION,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 50,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
        **_KEEPS_ENTROPY[algorithm],
    }


def _shared_settings(folder: Path) -> dict[str, Any]:
    """Return what the configurations of all trainers share."""
    return {
        "output_dir": str(folder / "demo"),
        "seed": 0,
        "use_cpu": True,
        "bf16": False,  # TRL's default, and on most CPUs twice as slow
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": _BATCH,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


class _Rule(torch.nn.Module):  # type: ignore[misc] # torch is not checked
    """Stands in for a reward model's transformer: returns the reward of each text at every position."""

    def __init__(self, tokenizer: Any, rewards: list[Reward]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._rewards = rewards

    def forward(self, input_ids: Any, **_: Any) -> Any:
        scores = torch.tensor(scored(self._tokenizer.batch_decode(input_ids, skip_special_tokens=True), self._rewards))
        return SimpleNamespace(hidden_states=[scores.view(-1, 1, 1).expand(*input_ids.shape, 1)])


class RuleReward(torch.nn.Module):  # type: ignore[misc] # torch is not checked
    """A reward model without weights, in the form that modern PPO wants."""

    base_model_prefix = "rule"

    def __init__(self, tokenizer: Any, rewards: list[Reward]) -> None:
        super().__init__()
        self.rule = _Rule(tokenizer, rewards)
        self.score = torch.nn.Identity()


def scored(texts: list[str], rewards: list[Reward]) -> list[float]:
    """Return the sum of ``rewards`` for each of ``texts``, which begin with their prompts: `e:`."""
    prompts, completions = [text[:2] for text in texts], [text[2:] for text in texts]
    by_function = [reward(prompts=prompts, completions=completions) for reward in rewards]
    return [sum(values) for values in zip(*by_function, strict=True)]


def of_ppo(steps: int, folder: Path, model: Any, rewards: list[Reward]) -> Any:
    """Return a real modern PPO trainer on a tiny model, with an untrained critic."""
    try:
        from trl.experimental.ppo import PPOConfig, PPOTrainer
    except ImportError:
        from trl import PPOConfig, PPOTrainer
    config = model.config
    config.num_labels = 1
    tokenizer = tiny.tokenizer()
    return PPOTrainer(
        args=PPOConfig(**_ppo_settings(steps, folder)),
        processing_class=tokenizer,
        model=model,
        ref_model=LlamaForCausalLM.from_pretrained(folder / "tiny-llama"),
        reward_model=RuleReward(tokenizer, rewards),
        value_model=LlamaForSequenceClassification(config),
        train_dataset=datasets.Dataset.from_dict({"input_ids": [tokenizer(p)["input_ids"] for p in tiny.prompts(512)]}),
    )


def _ppo_settings(steps: int, folder: Path) -> dict[str, Any]:
    return {
        **_shared_settings(folder),
        "total_episodes": steps * _BATCH,
        "learning_rate": 3e-4,
        "gradient_accumulation_steps": 1,
        "num_mini_batches": 2,
        "num_ppo_epochs": 2,
        "local_rollout_forward_batch_size": _BATCH,
        "response_length": tiny.MAX_COMPLETION,
        "stop_token": "eos",
        "kl_coef": 0.05,
        "num_sample_generations": 0,
    }


class LegacyRun:
    """The loop around legacy PPO, which leaves it to its user."""

    def __init__(self, steps: int, folder: Path, rewards: list[Reward]) -> None:
        self._steps, self._rewards = steps, rewards
        self._tokenizer = tiny.tokenizer()
        load = trl.AutoModelForCausalLMWithValueHead.from_pretrained
        path = str(folder / "tiny-llama")
        config = trl.PPOConfig(batch_size=_BATCH, mini_batch_size=8, learning_rate=1e-4, init_kl_coef=0.05, seed=0)
        self.trainer = trl.PPOTrainer(config, load(path), load(path), self._tokenizer)

    def train(self, before: Callable[[Any, Any, int], None] | None, after: Callable[[], None]) -> None:
        """Train as TRL's own examples do: generate, reward, step, log.

        ``before`` is called before each step with model, optimizer and its number, ``after`` when it is done.
        """
        prompts = tiny.prompts(_BATCH)
        queries = [self._tokenizer(prompt, return_tensors="pt")["input_ids"][0] for prompt in prompts]
        sampling = {"do_sample": True, "top_k": 0, "top_p": 1.0, "pad_token_id": 0, "eos_token_id": 1}
        for step in range(1, self._steps + 1):
            if before:
                before(self.trainer.model, self.trainer.optimizer, step)
            sampled = self.trainer.generate(
                queries, return_prompt=False, max_new_tokens=tiny.MAX_COMPLETION, **sampling
            )
            texts = self._tokenizer.batch_decode(sampled, skip_special_tokens=True)
            scores = scored([prompt + text for prompt, text in zip(prompts, texts, strict=True)], self._rewards)
            rewards = [torch.tensor(score) for score in scores]
            stats = self.trainer.step(queries, list(sampled), rewards)
            self.trainer.log_stats(stats, {"query": prompts, "response": texts}, rewards)
            after()
