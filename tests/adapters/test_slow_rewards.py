"""A reward function that becomes slow is named by a real training, whichever kind of function it is."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlexporter
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import incidents, labelled
from tests.served import errors

pytestmark = REAL_TRAINERS
SLOW_FROM, STEPS, SECONDS = 25, 33, 0.6


def _waits(calls: Any) -> float:
    """How long a call waits for a service that has become slow."""
    return SECONDS if next(calls) >= SLOW_FROM else 0.0


def _plain() -> Callable[..., Any]:
    calls = itertools.count(1)

    def judge(completions: list[str], **_: Any) -> list[float]:
        time.sleep(_waits(calls))
        return [float(len(set(text))) for text in completions]

    return judge


def _coroutine() -> Callable[..., Any]:
    calls = itertools.count(1)

    async def judge(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(_waits(calls))
        return [float(len(set(text))) for text in completions]

    return judge


@pytest.mark.parametrize("make", [_plain, _coroutine])
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
