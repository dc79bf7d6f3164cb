"""A resume that loads no moments of the optimizer is named; one that loads them is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rlexporter
from rlexporter.adapters.weights import updates_of
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import incidents
from tests.served import errors

pytestmark = REAL_TRAINERS
STEPS = 8


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw_torch", "adamw_torch_fused", "sgd"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_resume(tmp_path: Path, kept: bool, optimizer: str) -> None:
    """As `save_only_model`, or who copies the weights alone, leaves a checkpoint. SGD has no moments."""
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": STEPS, "optim": optimizer}
    tiny.grpo(tmp_path, max_steps=STEPS, **options).train()
    checkpoint = tmp_path / "trainer_output" / f"checkpoint-{STEPS}"
    if not kept:
        (checkpoint / "optimizer.pt").unlink()
    trainer = tiny.grpo(tmp_path, max_steps=2 * STEPS, **options)
    exporter = rlexporter.attach(trainer)
    trainer.train(resume_from_checkpoint=str(checkpoint))

    lost = [each for each in incidents(exporter) if each["condition"] == "optimizer_restarted"]
    assert bool(lost) is (not kept and optimizer != "sgd")
    expected = None if optimizer == "sgd" else 2 * STEPS - 1 if kept else STEPS - 1
    assert exporter.snapshot.value("rl_optimizer_updates") == expected
    assert errors(exporter) == 0
    shutil.rmtree(tmp_path / "trainer_output")


def test_nothing_is_added_to_the_state() -> None:
    """It is a dictionary that makes what is asked for."""
    weight = torch.nn.Parameter(torch.ones(2))
    trainer = type("Trainer", (), {"optimizer": torch.optim.Adam([weight])})()
    assert updates_of(trainer) is None
    trainer.optimizer.state[torch.nn.Parameter(torch.ones(1))]["step"] = 3
    assert updates_of(trainer) is None
    assert weight not in trainer.optimizer.state
    weight.grad = torch.ones(2)
    trainer.optimizer.step()
    assert float(updates_of(trainer)) == 1.0
    trainer.optimizer.state[weight]["step"] = 7  # as those of 8 bits have it
    assert updates_of(trainer) == [7.0]


@pytest.mark.parametrize("state", [None, [], {"step": 3}, {}, "moments"])
def test_another_state_is_no_error(state: Any) -> None:
    """An optimizer of somebody's own may have any."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = SimpleNamespace(state=state, param_groups=[{"params": [weight]}])
    assert updates_of(SimpleNamespace(optimizer=optimizer)) is None
    optimizer.state = {weight: state}
    assert updates_of(SimpleNamespace(optimizer=optimizer)) == ([3.0] if state == {"step": 3} else None)
