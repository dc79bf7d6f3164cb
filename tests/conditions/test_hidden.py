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
from rlexporter.model.condition import Family
from tests import tiny
from tests.conditions.began import began, is_over

ROLLOUT, REUSED = 5, 6
"""A step with a rollout, and one with a second update on it: between two log lines."""

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class After(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does something to the model when the update of a step is done."""

    def __init__(self, step: int, how: Callable[[Any], None]) -> None:
        self._step, self._how = step, how

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == self._step:
            with torch.no_grad():
                self._how(model)


def _letters(bad: int) -> Callable[..., list[float]]:
    """A reward function that gives NaN for one sample in ten of one step."""

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        rewards = tiny.letters(completions)
        if trainer_state.global_step + 1 == bad:
            rewards[::10] = [math.nan] * len(rewards[::10])
        return rewards

    return letters


def _trainer(folder: Path, kind: str, *callbacks: TrainerCallback, bad: int = 0) -> Any:
    """The run that all faults are planted in: 20 completions a rollout, two updates on each, one log line."""
    return tiny.grpo(
        folder,
        kind=kind,
        rewards=[_letters(bad), tiny.shortness],
        max_steps=10,
        logging_steps=10,
        num_iterations=2,
        per_device_train_batch_size=20,
        callbacks=list(callbacks),
    )


def _run(trainer: Any) -> Exporter:
    """Attach and train; a rollout that dies of its weights is let die. No log line has a number that is none."""
    exporter = rlexporter.attach(trainer)
    try:
        trainer.train()
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
    assert all(math.isfinite(value) for line in trainer.state.log_history for value in line.values())
    return exporter


def _train(trainer: Any) -> Exporter:
    """The same for a run that ends well: its line covers the fault."""
    exporter = _run(trainer)
    assert "grad_norm" in trainer.state.log_history[0]
    assert trainer.state.log_history[0]["step"] == 10
    return exporter


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
class TestNumbersThatAreNone:
    """NaN in what TRL and transformers average without it."""

    def test_without_a_fault(self, tmp_path: Path, kind: str) -> None:
        """Nothing of what the other tests plant, and nothing critical at all."""
        exporter = _train(_trainer(tmp_path, kind))

        for family in (Family.NONFINITE, Family.POLICY_STEP):
            assert began(exporter, family) == {}
        assert not [name for name in began(exporter) if name[1] == "critical"]
        exporter.close()

    def test_a_burst_of_nan_losses(self, tmp_path: Path, kind: str) -> None:
        """For two steps."""
        trainer = _trainer(tmp_path, kind)
        training_step = trainer.training_step

        def burst(*args: Any, **kwargs: Any) -> Any:
            loss = training_step(*args, **kwargs)
            return loss * math.nan if trainer.state.global_step + 1 in (ROLLOUT, ROLLOUT + 1) else loss

        trainer.training_step = burst
        exporter = _train(trainer)

        assert began(exporter, Family.NONFINITE) == {("nonfinite_loss", "critical"): ROLLOUT}
        assert is_over(exporter, "nonfinite_loss", "critical")
        exporter.close()

    def test_a_tenth_of_the_rewards(self, tmp_path: Path, kind: str) -> None:
        """Two of twenty."""
        exporter = _train(_trainer(tmp_path, kind, bad=ROLLOUT))
        value = exporter.snapshot.value
        labels = {"condition": "nonfinite_reward", "severity": "critical"}

        assert began(exporter, Family.NONFINITE) == {("nonfinite_reward", "critical"): ROLLOUT}
        assert value("rl_condition_last_event_value", **labels) == 2
        assert is_over(exporter, *labels.values())
        exporter.close()

    def test_a_weight(self, tmp_path: Path, kind: str) -> None:
        """Lost in the update of a step; the next rollout dies of it, before any line."""

        def spoil(model: Any) -> None:
            next(model.parameters()).view(-1)[0] = math.nan

        trainer = _trainer(tmp_path, kind, After(ROLLOUT - 1, spoil))
        exporter = _run(trainer)

        assert exporter.snapshot.value("rl_run_state", state="failed") == 1
        assert trainer.state.log_history == []
        assert began(exporter, Family.NONFINITE) == {("nonfinite_weights", "critical"): ROLLOUT - 1}
        exporter.close()


def test_a_ratio_that_blows_up_for_one_step(tmp_path: Path) -> None:
    """Between the updates on a rollout the policy is thrown far away, and back after them. TRL logs no ratio."""
    kept: list[Any] = []

    def throw(model: Any) -> None:
        weight = model.lm_head.weight
        kept.append(weight.clone())
        weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))

    def mend(model: Any) -> None:
        model.lm_head.weight.copy_(kept.pop())

    exporter = _train(_trainer(tmp_path, "GRPO", After(REUSED - 1, throw), After(REUSED, mend)))
    found = began(exporter, Family.POLICY_STEP)

    assert found["ratio_tail", "critical"] == REUSED
    assert set(found.values()) == {REUSED}
    assert is_over(exporter, "ratio_tail", "critical")
    exporter.close()
