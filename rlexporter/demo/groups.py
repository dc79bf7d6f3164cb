"""The demo's GRPO and RLOO trainers. Imports trl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import trl

from rlexporter.demo import tiny

_KEEPS_ENTROPY: dict[str, dict[str, Any]] = {
    "grpo": {"beta": 0.07, "scale_rewards": "none"},
    "rloo": {"beta": 0.08},
}
"""By algorithm, what lets a run learn and then stay as it is, however long it runs.

The penalty balances the reward at some entropy. Advantages that are divided by their spread would have no such balance:
the less there is left to learn, the more they are blown up.
"""


def trainer(algorithm: str, steps: int, folder: Path, model: Any, rewards: list[Any]) -> Any:
    """Return a real trainer on a tiny model, with evaluation and two iterations per batch."""
    kind = {"grpo": "GRPO", "rloo": "RLOO"}[algorithm]
    return getattr(trl, f"{kind}Trainer")(
        model=model,
        processing_class=tiny.tokenizer(),
        reward_funcs=rewards,
        args=getattr(trl, f"{kind}Config")(**settings(algorithm, steps, folder)),
        train_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(512)}),
        eval_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(8)}),
    )


def settings(algorithm: str, steps: int, folder: Path) -> dict[str, Any]:
    """Return the settings of the trainer's configuration."""
    return {
        "output_dir": str(folder / "demo"),
        "max_steps": steps,
        "seed": 0,
        "use_cpu": True,
        "bf16": False,  # TRL's default, and on most CPUs twice as slow
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 64,
        "num_generations": 8,
        "num_iterations": 2,
        "max_completion_length": tiny.MAX_COMPLETION,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 50,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
        **_KEEPS_ENTROPY[algorithm],
    }
