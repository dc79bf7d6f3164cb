"""What is compared in a rollout and a loss is equal in healthy runs of GRPO and RLOO, in which nothing of it begins.

The faults that it shows are planted in `tests/faults`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

import rlexporter
from rlexporter.conditions.table import CONDITIONS
from rlexporter.model.condition import Family
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.conditions.began import began
from tests.served import errors

pytestmark = REAL_TRAINERS

PROMPTS = [f"{a}{b}{c}:" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
OPTIONS = {
    "max_steps": 44,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "max_completion_length": 12,
}
NAMES = {each.name for each in CONDITIONS if each.family in (Family.DATA, Family.OBJECTIVE, Family.WEIGHTS)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GRPO", {}),
        ("GRPO", {"num_iterations": 2}),
        ("RLOO", {}),
        ("GRPO", {"beta": 0.0, "lr_scheduler_type": "cosine"}),
    ],
    ids=["grpo", "twice", "rloo", "cosine"],
)
def test_nothing_of_it_begins_in_a_healthy_run(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    """And what is compared is equal: the correlation is 1, no mask is wrong."""
    trainer = tiny.grpo(tmp_path, kind=kind, **{**OPTIONS, **options})
    trainer.train_dataset = datasets.Dataset.from_dict({"prompt": PROMPTS})
    exporter = rlexporter.attach(trainer)
    trainer.train()

    assert errors(exporter) == 0
    assert not {name for name, _ in began(exporter)} & NAMES
    assert exporter.snapshot.value("rl_loss_mask_wrong_fraction") == 0.0
    assert exporter.snapshot.value("rl_advantage_reward_correlation") == pytest.approx(1.0, abs=1e-3)
