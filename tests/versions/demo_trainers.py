"""The demo's trainers with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import PrinterCallback

from rlexporter.demo import trainers
from tests.tiny import ON_GPU

_DEVICE = {"use_cpu": not ON_GPU, "bf16": ON_GPU}
"""As people train there: a GPU with autocast to bf16, a CPU without."""


def legacy(steps: int, folder: Path, rewards: list[Any], **options: Any) -> trainers.LegacyRun:
    """The loop of legacy PPO, with the model in ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        config = trl.PPOConfig
        patch.setattr(trl, "PPOConfig", lambda **settings: config(**{**settings, **options}))
        return trainers.LegacyRun(steps, folder, rewards)


def modern(algorithm: str, steps: int, folder: Path, model: Any, rewards: list[Any], **options: Any) -> Any:
    """A trainer of GRPO, RLOO or modern PPO; its reference is the model in ``folder``."""
    name = "_ppo_settings" if algorithm == "ppo" else "_group_settings"
    settings = getattr(trainers, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainers, name, lambda *args: {**settings(*args), **_DEVICE, **options})
        if algorithm == "ppo":
            trainer = trainers.of_ppo(steps, folder, model, rewards)
        else:
            trainer = trainers.of_groups(algorithm, steps, folder, model, rewards)
    trainer.remove_callback(PrinterCallback)
    return trainer
