"""A reward function that becomes slow is named by a real training, whichever kind of function it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import rlexporter
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import incidents, labelled
from tests.served import errors

pytestmark = REAL_TRAINERS
SLOW_FROM, STEPS, SECONDS = 25, 33, 0.6


class Service:
    """One that becomes slow: many times slower than steps are here, on a busy machine too."""

    def __init__(self) -> None:
        self.calls: list[float] = []

    def seconds(self) -> float:
        """How long this call waits for it."""
        self.calls.append(time.perf_counter())
        if len(self.calls) < SLOW_FROM:
            return 0.0
        usual = [after - before for before, after in pairwise(self.calls[: SLOW_FROM - 1])]
        return max(SECONDS, 8 * median(usual))


def _plain() -> Callable[..., Any]:
    service = Service()

    def judge(completions: list[str], **_: Any) -> list[float]:
        time.sleep(service.seconds())
        return [float(len(set(text))) for text in completions]

    return judge


def _coroutine() -> Callable[..., Any]:
    service = Service()

    async def judge(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(service.seconds())
        return [float(len(set(text))) for text in completions]

    return judge


@pytest.mark.slow
@pytest.mark.parametrize("make", [_plain, pytest.param(_coroutine, marks=pytest.mark.soak)])
def test_it_is_named(tmp_path: Path, make: Callable[[], Any]) -> None:
    """With the time of its last call; the other function is not."""
    trainer = tiny.grpo(tmp_path, rewards=[tiny.letters, make()], max_steps=STEPS)
    exporter = rlexporter.attach(trainer)
    trainer.train()

    calls = labelled(exporter, "rl_reward_function_time_seconds")
    assert calls["judge"] > SECONDS > calls["letters"] > 0.0
    slow = [each for each in incidents(exporter) if each["condition"] == "step_slow"]
    assert [each["subject"] for each in slow] == ["judge"]
    assert errors(exporter) == 0


def test_evaluation_is_not_counted(tmp_path: Path) -> None:
    """It takes as long as it takes."""
    trainer = tiny.grpo(tmp_path, max_steps=2)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    before = labelled(exporter, "rl_reward_function_time_seconds")
    trainer.evaluate()

    assert labelled(exporter, "rl_reward_function_time_seconds") == before
    assert before.keys() == {"letters", "shortness"}
