"""What is found in a live run does not depend on how often it logs: tensors and steps are seen all the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import rlexporter
from rlexporter.catalog import CONDITION_NAMED
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.conditions.judge import Judge, Transition
from rlexporter.conditions.view import View
from rlexporter.model.condition import Family
from tests import tiny
from tests.conditions.began import began

STEPS = 51
EVERY = (1, 10, 50)
"""The settings of `logging_steps`. The last step has a line of its own in the first only."""
NAN, STEEP, FLAT, STILL = 13, 23, 27, 33
"""The steps in which the faults begin, in the middle of windows: a reward is NaN, once; gradients are ten thousand
times too large; a reward function is constant; the learning rate is 0."""

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Planted(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """The faults of the trainer."""

    def on_step_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, lr_scheduler: Any = None, **kwargs: Any
    ) -> None:
        if state.global_step + 1 == STEEP:
            model.lm_head.weight.register_hook(lambda gradient: gradient * 1e4)
        if state.global_step + 2 == STILL:  # a scheduler sets the rate of the step that comes next
            lr_scheduler.base_lrs = [0.0] * len(lr_scheduler.base_lrs)


def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
    """The reward function that has faults; without them it hardly ever gives the same twice."""
    step = trainer_state.global_step + 1
    if step >= FLAT:
        return [-1.0] * len(completions)
    rewards = [reward + 0.01 * len(text) for reward, text in zip(tiny.letters(completions), completions, strict=True)]
    return [math.nan if step == NAN and i == 0 else reward for i, reward in enumerate(rewards)]


@dataclass(frozen=True)
class Found:
    """What was judged in a run, but for what is a matter of time or of log lines."""

    began: dict[tuple[str, str], int]
    """The step in which each condition last began."""
    signals: dict[str, list[float]]
    """All values of each signal."""


def _train(folder: Path, every: int, monkeypatch: pytest.MonkeyPatch) -> Found:
    judges: set[Judge] = set()
    step = Judge.step

    def keep(judge: Judge, view: View) -> list[Transition]:
        judges.add(judge)
        return step(judge, view)

    torch.manual_seed(0)
    trainer = tiny.grpo(
        folder,
        rewards=[letters, tiny.shortness],
        max_steps=STEPS,
        logging_steps=every,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        callbacks=[Planted()],
    )
    exporter = rlexporter.attach(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "step", keep)
        trainer.train()
    exporter.close()
    (judge,) = judges
    of_time = (Family.SLOW, Family.STALL, Family.KEYS)
    found = {name: step for name, step in began(exporter).items() if CONDITION_NAMED[name[0]].family not in of_time}
    signals = {name: list(judge.past(name).values) for name in SIGNAL_NAMED if name not in ("step_time", "keys_gone")}
    return Found(found, signals)


@pytest.mark.slow
def test_the_same_is_found_in_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signal has the same values, and the same conditions begin, among them those that name the faults."""
    found = {every: _train(tmp_path / str(every), every, monkeypatch) for every in EVERY}
    first = found[1]

    assert first.began["nonfinite_reward", "critical"] == NAN
    assert first.began["grad_explosion", "critical"] == STEEP + 2
    assert FLAT < first.began["reward_function_dead", "warning"] < STEPS
    assert first.began["learning_rate_zero", "warning"] == STILL + 9
    for every in EVERY:
        assert found[every].began == first.began, every
        assert [name for name in first.signals if found[every].signals[name] != first.signals[name]] == [], every
