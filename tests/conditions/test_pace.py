"""A step that takes far longer names the part that grew: a phase, or one reward function."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rlexporter.model.snapshot import RunState
from rlexporter.model.step import StepUpdate
from tests.conditions.planted import LINES, Planted, counted
from tests.status.runs import said

_USUAL = {"rollout": 4.0, "reward": 1.0, "update": 2.0}
_FUNCTIONS = {"letters": 0.2, "sandbox": 0.8}


def _steps(run: Planted, steps: int, phases: Mapping[str, float], functions: Mapping[str, float] = _FUNCTIONS) -> None:
    """Steps whose phases take so many seconds, and in "reward" the functions."""
    for _ in range(steps):
        run.step += 1
        run.clock += sum(phases.values())
        seen = counted({f"rl_reward_function_time_seconds/{name}": [took] for name, took in functions.items()})
        update = StepUpdate(step=run.step, duration=sum(phases.values()), phases=phases, seen=seen)
        rewards = {"rewards/sandbox/mean": 0.5, "rewards/sandbox/std": 0.1}
        run.feed.record({**LINES["grpo"](run.step), **rewards}, run.step, update)


def _about(run: Planted, condition: str) -> list[tuple[str, int]]:
    """What it was about when it began, with the step since which it is so."""
    return [(begun.subject, begun.since) for (name, _), (_, begun) in run.watch.first.items() if name == condition]


SLOW = {
    "a reward function": ({**_USUAL, "reward": 40.2}, {**_FUNCTIONS, "sandbox": 40.0}, "sandbox"),
    "two, of which one is worse": ({**_USUAL, "reward": 50.0}, {"letters": 10.0, "sandbox": 40.0}, "sandbox"),
    "a reward model, which is no function": ({**_USUAL, "reward": 41.0}, _FUNCTIONS, "reward"),
    "the rollout": ({**_USUAL, "rollout": 40.0}, _FUNCTIONS, "rollout"),
    "the update": ({**_USUAL, "update": 40.0}, _FUNCTIONS, "update"),
    "everything": ({name: 5 * took for name, took in _USUAL.items()}, {"letters": 1.0, "sandbox": 4.0}, "rollout"),
    "three parts alike": ({name: took + 10 for name, took in _USUAL.items()}, _FUNCTIONS, ""),
}


@pytest.mark.parametrize("case", SLOW)
def test_the_part_that_grew_is_named(case: str) -> None:
    """With the step since which it is so; where no part makes half of it, none is."""
    phases, functions, expected = SLOW[case]
    run = Planted("grpo")
    _steps(run, 40, _USUAL)
    _steps(run, 8, phases, functions)

    assert _about(run, "step_slow") == [(expected, 41)]


def test_the_verdict_says_how_long_it_takes() -> None:
    """And not what the function returns: that is as before."""
    run = Planted("grpo")
    _steps(run, 40, _USUAL)
    _steps(run, 8, {**_USUAL, "reward": 40.2}, {**_FUNCTIONS, "sandbox": 40.0})
    run.feed.enter(RunState.RUNNING)
    found = said(run.snapshot)

    assert found.text == (
        "Steps have become much slower, most of all in sandbox. In step 48: 46.2 seconds, limit 28 seconds. "
        "It began in step 41."
    )
    assert found.curve == {"series": "rl_signal", "labels": {"signal": "step_time"}}


def test_steps_that_are_slow_now_and_then_are_still_one_row() -> None:
    """Eight of ten."""
    run = Planted("grpo")
    _steps(run, 40, _USUAL)
    slow = {**_USUAL, "reward": 40.0}
    for many in (3, 5):
        _steps(run, many, slow, {**_FUNCTIONS, "sandbox": 39.8})
        _steps(run, 1, _USUAL)

    assert _about(run, "step_slow") == [("sandbox", 41)]


def test_one_slow_step_is_nothing() -> None:
    """Nor is one in ten."""
    run = Planted("grpo")
    _steps(run, 40, _USUAL)
    for _ in range(10):
        _steps(run, 1, {**_USUAL, "reward": 40.0}, {**_FUNCTIONS, "sandbox": 39.8})
        _steps(run, 9, _USUAL)

    assert _about(run, "step_slow") == []


def test_a_pause_in_a_function_names_it() -> None:
    """Not long enough to count as hung."""
    run = Planted("grpo")
    _steps(run, 40, _USUAL)
    _steps(run, 1, {**_USUAL, "reward": 300.0}, {**_FUNCTIONS, "sandbox": 299.8})

    assert _about(run, "step_stalled") == [("sandbox", 41)]


def test_the_phases_that_a_framework_logs_are_read_too() -> None:
    """Those of asynchronous GRPO: nothing of ours is in its loop."""
    run = Planted("async-grpo", framework="trl")

    def logged(steps: int, seconds: float) -> None:
        for _ in range(steps):
            run.step += 1
            run.clock += seconds + 2.0
            line = {"reward": 0.5, "perf/step_s": seconds + 2.0, "perf/wait_s": seconds, "perf/train_s": 2.0}
            run.feed.record(line, run.step, StepUpdate(step=run.step, duration=seconds + 2.0))

    logged(40, 2.0)
    logged(8, 40.0)

    assert _about(run, "step_slow") == [("wait", 41)]
