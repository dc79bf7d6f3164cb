"""Faults that no log line shows: real GRPO and RLOO runs, and the conditions that begin in the step of the fault."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from rlexporter.condition import Family
from tests import tiny
from tests.alerts.began import began

FAULT = 14

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Before(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does something to the trainer's model just before a step."""

    def __init__(self, step: int, how: Callable[[Any], None]) -> None:
        self._step, self._how = step, how

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            with torch.no_grad():
                self._how(model)


def _run(trainer: Any) -> Exporter:
    """Attach and train; a rollout that dies of its weights is let die."""
    exporter = rlexporter.attach(trainer)
    try:
        trainer.train()
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    return exporter


def _finite(trainer: Any) -> bool:
    """Whether every number of every log line is one."""
    lines = trainer.state.log_history
    return all(math.isfinite(value) for line in lines for value in line.values())


def _ended(exporter: Exporter, condition: str) -> bool:
    value = exporter.snapshot.value
    labels = {"condition": condition, "severity": "critical"}
    return value("rl_condition", **labels) == 0 and value("rl_condition_events_total", **labels) == 1


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
@pytest.mark.parametrize("faulty", [True, False])
class TestNumbersThatAreNone:
    """Each with a log line every tenth step."""

    def test_a_burst_of_nan_losses(self, tmp_path: Path, kind: str, faulty: bool) -> None:
        """Two steps of it; transformers logs the mean of the others."""
        trainer = tiny.grpo(tmp_path, kind=kind, max_steps=20, logging_steps=10)
        training_step = trainer.training_step

        def burst(*args: Any, **kwargs: Any) -> Any:
            loss = training_step(*args, **kwargs)
            return loss * math.nan if faulty and trainer.state.global_step + 1 in (FAULT, FAULT + 1) else loss

        trainer.training_step = burst
        exporter = _run(trainer)

        assert [line["step"] for line in trainer.state.log_history] == [10, 20, 20]
        assert _finite(trainer)
        assert began(exporter, Family.NONFINITE) == ({("nonfinite_loss", "critical"): FAULT} if faulty else {})
        assert _ended(exporter, "nonfinite_loss") is faulty
        exporter.close()

    def test_a_tenth_of_the_rewards(self, tmp_path: Path, kind: str, faulty: bool) -> None:
        """TRL takes NaN for a None and leaves it out of every mean."""

        def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
            rewards = tiny.letters(completions)
            if faulty and trainer_state.global_step + 1 == FAULT:
                rewards[::10] = [math.nan] * len(rewards[::10])
            return rewards

        trainer = tiny.grpo(
            tmp_path,
            kind=kind,
            rewards=[letters, tiny.shortness],
            max_steps=20,
            logging_steps=10,
            per_device_train_batch_size=20,
        )
        exporter = _run(trainer)

        assert _finite(trainer)
        assert began(exporter, Family.NONFINITE) == ({("nonfinite_reward", "critical"): FAULT} if faulty else {})
        assert exporter.snapshot.value(
            "rl_condition_last_event_value", condition="nonfinite_reward", severity="critical"
        ) == (2 if faulty else None)
        assert _ended(exporter, "nonfinite_reward") is faulty
        exporter.close()

    def test_a_weight(self, tmp_path: Path, kind: str, faulty: bool) -> None:
        """The rollout dies of it, without a line; the exporter has seen it before."""

        def spoil(model: Any) -> None:
            next(model.parameters()).view(-1)[0] = math.nan

        callbacks = [Before(FAULT, spoil)] if faulty else []
        trainer = tiny.grpo(tmp_path, kind=kind, max_steps=16, logging_steps=10, callbacks=callbacks)
        exporter = _run(trainer)

        assert _finite(trainer)
        assert exporter.snapshot.value("rl_run_state", state="failed") == faulty
        assert began(exporter, Family.NONFINITE) == ({("nonfinite_weights", "critical"): FAULT} if faulty else {})
        exporter.close()


@pytest.mark.parametrize("faulty", [True, False])
def test_a_ratio_that_blows_up_for_one_step(tmp_path: Path, faulty: bool) -> None:
    """Between the two updates on a rollout the policy is thrown far away, and back after them. TRL logs no ratio."""
    kept: list[Any] = []

    def throw(model: Any) -> None:
        kept.append(model.lm_head.weight.clone())
        generator = torch.Generator().manual_seed(0)
        model.lm_head.weight.add_(torch.randn(model.lm_head.weight.shape, generator=generator))

    def mend(model: Any) -> None:
        model.lm_head.weight.copy_(kept.pop())

    callbacks = [Before(FAULT, throw), Before(FAULT + 1, mend)] if faulty else []
    trainer = tiny.grpo(tmp_path, max_steps=20, num_iterations=2, logging_steps=10, callbacks=callbacks)
    exporter = _run(trainer)
    found = began(exporter, Family.POLICY_STEP)

    assert not any("ratio/" in key.replace("clip_ratio/", "") for line in trainer.state.log_history for key in line)
    assert set(found.values()) == ({FAULT} if faulty else set())
    assert (("ratio_tail", "critical") in found) is faulty
    assert _ended(exporter, "ratio_tail") is faulty
    exporter.close()
