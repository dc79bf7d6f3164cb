"""The demo's trainers with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import PrinterCallback

from rlexporter.demo import groups, ppo_loops


def legacy(steps: int, folder: Path, rewards: list[Any], **options: Any) -> ppo_loops.LegacyRun:
    """The loop of legacy PPO, with the model in ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        config = trl.PPOConfig
        patch.setattr(trl, "PPOConfig", lambda **settings: config(**{**settings, **options}))
        return ppo_loops.LegacyRun(steps, folder, rewards)


def modern(algorithm: str, steps: int, folder: Path, model: Any, rewards: list[Any], **options: Any) -> Any:
    """A trainer of GRPO, RLOO or modern PPO; its reference is the model in ``folder``."""
    module, name = (ppo_loops, "_settings") if algorithm == "ppo" else (groups, "settings")
    settings = getattr(module, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, lambda *args: {**settings(*args), "bf16": False, **options})
        if algorithm == "ppo":
            trainer = ppo_loops.trainer(steps, folder, model, rewards)
        else:
            trainer = groups.trainer(algorithm, steps, folder, model, rewards)
    trainer.remove_callback(PrinterCallback)
    return trainer
