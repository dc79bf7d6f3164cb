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
from rlexporter.model.condition import Family
from tests import tiny
from tests.conditions.began import began, is_over

REWARD, BURST, THROWN, LOST = 3, 5, 8, 14
"""The steps of the faults. Odd ones have a rollout, even ones a second update on it: a ratio that is not 1."""
LINE, STEPS = 10, 20
"""The step of the only log line, which covers all faults but the last; and when the run would end."""

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
    """A reward function that gives NaN for one sample in ten of one step: for two of twenty."""
    rewards = tiny.letters(completions)
    if trainer_state.global_step + 1 == REWARD:
        rewards[::10] = [math.nan] * len(rewards[::10])
    return rewards


class Weights(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Between the updates on a rollout the policy is thrown far away, and back after them; later a weight is lost."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        weight = model.lm_head.weight
        with torch.no_grad():
            if state.global_step == THROWN - 1:
                self._kept = weight.clone()
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
            elif state.global_step == THROWN:
                weight.copy_(self._kept)
            elif state.global_step == LOST:
                next(model.parameters()).view(-1)[0] = math.nan


def _burst(trainer: Any) -> Callable[..., Any]:
    """NaN losses for two steps."""
    training_step = trainer.training_step

    def burst(*args: Any, **kwargs: Any) -> Any:
        loss = training_step(*args, **kwargs)
        return loss * math.nan if trainer.state.global_step + 1 in (BURST, BURST + 1) else loss

    return burst


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_each_fault_is_named_with_its_step(tmp_path: Path, kind: str) -> None:
    """In one run, whose only log line is of numbers: neither it nor the rollout that dies of a weight says what was.

    Nothing else that is critical begins, so that the run was healthy until each fault.
    """
    trainer = tiny.grpo(
        tmp_path,
        kind=kind,
        rewards=[letters, tiny.shortness],
        max_steps=STEPS,
        logging_steps=LINE,
        num_iterations=2,
        per_device_train_batch_size=20,
        callbacks=[Weights()],
    )
    trainer.training_step = _burst(trainer)
    exporter = rlexporter.attach(trainer)
    with pytest.raises(RuntimeError, match="probability tensor"):
        trainer.train()
    value = exporter.snapshot.value
    faults = {"nonfinite_reward": REWARD, "nonfinite_loss": BURST, "nonfinite_weights": LOST}
    if kind == "GRPO":  # RLOO has one ratio a sequence: no tail is asked of it
        faults["ratio_tail"] = THROWN

    (line,) = trainer.state.log_history
    assert line["step"] == LINE
    assert "grad_norm" in line
    assert all(math.isfinite(each) for each in line.values())
    assert value("rl_run_state", state="failed") == 1
    assert {name: step for (name, severity), step in began(exporter).items() if severity == "critical"} == faults
    assert set(began(exporter, Family.POLICY_STEP).values()) <= {THROWN}
    assert value("rl_condition_last_event_value", condition="nonfinite_reward", severity="critical") == 2
    assert [name for name in faults if not is_over(exporter, name, "critical")] == ["nonfinite_weights"]
    exporter.close()
