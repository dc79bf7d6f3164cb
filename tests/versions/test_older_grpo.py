"""GRPO of trl 0.19, where it differs: it logs no entropy, NaN for what is not in a batch, and may lack a reference.

`make versions` has an environment with it. GRPO and RLOO of today are in `tests/conditions/test_live_faults.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.model.condition import Family
from tests import tiny as trainers
from tests.adapters.marks import REAL_TRAINERS
from tests.conditions.began import began
from tests.served import errors
from tests.versions.trls import VERSION

FAULT = 6
"""The first step that has a past of five to be measured with."""
STEPS = 10

pytestmark = [
    *REAL_TRAINERS,
    pytest.mark.slow,
    pytest.mark.skipif(VERSION != (0, 19), reason="trl 0.19 is the first in which GRPO has taps"),
]


class _After(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does something when the update of a step is done."""

    def __init__(self, step: int, how: Callable[[], object]) -> None:
        self._step, self._how = step, how

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._step:
            with torch.no_grad():
                self._how()


def _run(trainer: Any) -> Exporter:
    exporter = rlexporter.attach(trainer)
    trainer.train()
    return exporter


def test_an_entropy_that_is_not_logged_collapses(tmp_path: Path) -> None:
    """Minus the log-probability of the sampled tokens stands in; without a fault it is judged all the same.

    The fault: every logit is a hundred thousand times itself, so that each prompt has one answer.
    """
    trainer = trainers.grpo(tmp_path / "fault", max_steps=STEPS, logging_steps=10)
    trainer.add_callback(_After(FAULT - 1, lambda: trainer.model.lm_head.weight.mul_(1e5)))
    exporter = _run(trainer)

    assert not any("entropy" in key for line in trainer.state.log_history for key in line)
    assert began(exporter, Family.ENTROPY_LOW) == {
        ("entropy_low", "warning"): FAULT + 3,
        ("entropy_collapsed", "critical"): FAULT + 3,
    }
    exporter.close()

    exporter = _run(trainers.grpo(tmp_path / "healthy", max_steps=STEPS, logging_steps=10))
    assert exporter.snapshot.value("rl_condition_judged", condition="entropy_collapsed") == 1
    assert began(exporter, Family.ENTROPY_LOW) == {}


@pytest.mark.parametrize("logging_steps", [1, 5])
def test_a_task_that_is_not_in_the_batch_is_no_fault(tmp_path: Path, logging_steps: int) -> None:
    """A reward function gives None for every sample of a rollout: trl 0.19 logs its mean as NaN."""
    calls = itertools.count(1)

    def task(completions: list[str], **_: Any) -> list[float | None]:
        return [None] * len(completions) if next(calls) == FAULT else [*trainers.letters(completions)]

    rewards = [task, trainers.shortness]
    exporter = _run(trainers.grpo(tmp_path, rewards=rewards, max_steps=STEPS, logging_steps=logging_steps))

    assert exporter.snapshot.value("rl_undefined_values_total", metric="rl_reward_function_dist") == 4
    assert began(exporter, Family.NONFINITE) == {}


@pytest.mark.parametrize("num_iterations", [1, 3])
def test_without_kl_all_else_is_seen(tmp_path: Path, num_iterations: int) -> None:
    """No tap fails, though trl 0.19 has a reference of None then; that KL cannot be seen is said."""
    exporter = _run(trainers.grpo(tmp_path, beta=0.0, num_iterations=num_iterations, max_steps=STEPS))

    assert errors(exporter) == 0
    assert exporter.snapshot.value("rl_signal_available", signal="kl") == 0
    assert exporter.snapshot.value("rl_signal_available", signal="advantage") == 1
