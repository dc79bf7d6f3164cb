"""The last good checkpoint: the newest that was written before anything critical."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from rlexporter.exporter import Exporter
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from tests.conditions.planted import HEALTHY, Planted, wave

SAVE, AGAIN, SETTLE = "save", "again", "settle"
"""A checkpoint after the last step; another line of that step; the end of the run."""
LOSS, GRADIENT = {"loss": nan}, {"grad_norm": nan}
SEEN: dict[str, Any] = {"seen": {"rl_weight_norm": [1.0]}}
LOST: dict[str, Any] = {"seen": {"rl_weight_norm": [nan]}}
COLLAPSED, TRUNCATED = {"entropy": 0.001}, {"completions/clipped_ratio": 0.45}
RUNS: dict[str, list[Any]] = {
    "it is known with the next step: what its own step still shows is waited for": [
        *(10, SAVE, ("good", None), AGAIN, ("good", None), {}, ("good", 10)),
        *(9, SAVE, ("good", 10), 1, ("good", 20)),
    ],
    "one before the step of a NaN is good, even right before; not one of that step or later": [
        *(10, SAVE, 10, SAVE, GRADIENT, SAVE, ("good", 20)),
        *(GRADIENT, GRADIENT, GRADIENT, GRADIENT, SAVE, GRADIENT, ("good", 20)),
    ],
    "nor one of that step where the NaN ends at once: the checkpoint has what it did": [
        *(10, SAVE, SEEN, GRADIENT | SEEN, SAVE, SEEN, ("good", 10), SAVE, SEEN, ("good", 13)),
    ],
    "after a NaN the weights must have been seen: a trainer may hide that they are no numbers": [
        *(10, SAVE, LOSS, 5, SAVE, 2, ("good", 10), SEEN, 6, SAVE, 1, ("good", 25)),
    ],
    "weights that are NaN stay so": [
        *(10, SAVE, LOSS | SEEN, LOST, ("good", 10), SAVE, LOST, ("good", 10), SAVE, LOST, ("good", 10)),
    ],
    "what was saved while anything critical held is never good; what is saved when the entropy is back is": [
        *(10, SAVE, *[COLLAPSED] * 10, ("entropy_collapsed", 15), SAVE, COLLAPSED, ("good", 10)),
        *(10, ("good", 10), SAVE, 1, ("good", 31)),
    ],
    "a warning does not count: a person may look at it today": [
        *(20, SAVE, *[TRUNCATED] * 10, ("truncation", None), SAVE, TRUNCATED, ("good", 30)),
    ],
    "the end of a run decides of its last checkpoint, which no step comes after": [20, SAVE, SETTLE, ("good", 20)],
    "the end of a run in a NaN": [10, SAVE, 9, GRADIENT, SAVE, SETTLE, ("good", 10)],
}


@pytest.mark.parametrize("events", RUNS.values(), ids=RUNS.keys())
def test_which_one_is_good(events: list[Any]) -> None:
    """A number is of healthy steps, a line of one that is not; ("good", 10): by then the one of step 10 is served.

    Another name: in which step that condition has become critical by then.
    """
    run = Planted("grpo")
    for event in events:
        if isinstance(event, int):
            run.healthy(event)
        elif isinstance(event, dict):
            run.line({key: value for key, value in event.items() if key != "seen"}, seen=event.get("seen"))
        elif event == SAVE:
            run.feed.saved(run.step)
        elif event == AGAIN:
            run.feed.record({"epoch": 1.0}, run.step)
        elif event == SETTLE:
            run.feed.settle()
        elif event[0] == "good":
            assert run.snapshot.value("rl_last_good_checkpoint_step") == event[1]
        else:
            assert run.began.get((event[0], "critical")) == event[1]


def _good(run: Planted) -> float | None:
    return run.snapshot.value("rl_last_good_checkpoint_step")


def test_a_resumed_run_starts_with_its_own_checkpoint() -> None:
    """At once, before the first step, unless that shows that it was bad; a run from scratch has none."""
    run = Planted("grpo")
    run.begin(40)
    assert _good(run) == 40
    run.line({}, **SEEN)
    run.line(GRADIENT, **SEEN)
    assert _good(run) == 40
    run.begin(0)
    assert _good(run) is None
    run.begin(40)
    assert _good(run) == 40
    run.line({}, **LOST)
    assert _good(run) is None


@pytest.mark.parametrize(("before", "step", "good"), [(0, 10, None), (0, 11, 10), (10, 20, 10)])
def test_counts_that_come_late_are_of_their_own_step(before: int, step: int, good: int | None) -> None:
    """A checkpoint is not good for what a GPU has counted in its step, though that comes a step or two later."""
    run = Planted("grpo").healthy(10)
    run.feed.saved(10)
    if before:
        run.healthy(before)
        run.feed.saved(20)
        run.line({})
        assert _good(run) == 20
    run.late({"rl_grad_norm": [nan]}, step)
    run.line({})
    assert run.began["nonfinite", "critical"] == run.step
    assert _good(run) == good


SINKING: dict[str, Callable[[int], dict[str, float]]] = {
    "the reward falls": lambda n: {"reward": 0.05 * wave(n) - 1.0},
    "the reward sinks": lambda n: {"reward": 1.24 - 0.05 * n + 0.05 * wave(n)},
    "the reward sinks slowly": lambda n: {"reward": 1.24 - 0.02 * n + 0.05 * wave(n)},
    "the entropy is gone": lambda n: {"entropy": 0.001},
    "the entropy sinks": lambda n: {"entropy": 0.9 * 0.85**n},
    "the entropy rises": lambda n: {"entropy": 0.9 * 1.1**n},
    "completions are cut": lambda n: {"completions/clipped_ratio": 1.0},
    "more and more completions are cut": lambda n: {"completions/clipped_ratio": min(1.0, 0.02 + 0.04 * n)},
    "KL is high": lambda n: {"kl": 20.0},
    "KL grows": lambda n: {"kl": 0.2 * 1.2**n},
    "the gradient explodes": lambda n: {"grad_norm": 100.0},
    "the gradient is 0": lambda n: {"grad_norm": 0.0},
    "rewards are all alike": lambda n: {"reward_std": 0.0, "frac_reward_zero_std": 1.0, "reward": 0.3},
    "a reward function is dead": lambda n: {"rewards/answer/mean": 0.0, "rewards/answer/std": 0.0, "reward": 0.5},
    "the loss is NaN": lambda n: {"loss": nan},
    "the loss is NaN once": lambda n: {"loss": nan} if n == 1 else {},
}
"""What is logged in the n-th step of a fault: some are there at once, some come slowly."""


@pytest.mark.parametrize("every", [1, 7, 20])
@pytest.mark.parametrize("fault", SINKING.values(), ids=SINKING.keys())
def test_what_was_written_after_a_fault_began_is_not_good(fault: Callable[[int], dict[str, float]], every: int) -> None:
    """However long it takes to be certain, and from then on; nor is much more given up than that takes."""
    run = Planted("grpo")
    while run.step < HEALTHY:
        run.healthy(1)
        if run.step % every == 0:
            run.feed.saved(run.step)
    for number in range(1, 60):
        run.line(fault(number))
        if run.step % every == 0:
            run.feed.saved(run.step)
        if any(severity == "critical" for _, severity in run.began):
            break
    certain = min(step for (_, severity), step in run.began.items() if severity == "critical")
    good = _good(run)
    assert good is not None
    assert good <= HEALTHY
    assert good >= min(HEALTHY, certain) - run.watch.checkpoints.good.horizon - every
    horizon = run.watch.checkpoints.good.horizon
    assert 20 < horizon < 60


def test_a_cause_and_a_warning_before_it_count() -> None:
    """What is critical goes on from its warning; a checkpoint between the two is not good."""
    run = Planted("grpo", {"kl_high": {"warning": 0.5, "critical": 5.0}}).healthy(60)
    run.feed.saved(60)
    for _ in range(12):
        run.line({"kl": 1.0})
    run.feed.saved(run.step)
    run.line({"kl": 1.0})
    assert ("kl_high", "warning") in run.began
    assert _good(run) == 72, "a warning does not count by itself"
    for _ in range(12):
        run.line({"kl": 9.0})
    assert ("kl_high", "critical") in run.began
    assert _good(run) == 60


def test_what_goes_on_where_its_signal_moves_is_not_over() -> None:
    """A mean ratio above 10 in the log line, and then in the tensor: the checkpoint between the two is not good."""
    run = Planted("ppo").healthy(10)
    run.feed.saved(10)
    run.line({"val/ratio": 20.0})
    for _ in range(3):
        run.line({"val/ratio": 20.0}, seen={"rl_policy_ratio_dist": [9.0] * 99 + [190.0] * 2})
        run.feed.saved(run.step)
    assert run.value("rl_condition_events_total", "ratio_high") == 2
    assert _good(run) == 10


def test_a_run_that_fails_names_it(exporter: Exporter) -> None:
    """A checkpoint, a NaN in the next step, a checkpoint of that, a failure."""
    exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    exporter.run.sink.log({"loss": 1.0}, step=5)
    exporter.run.sink.saved(5)
    exporter.run.sink.log({"loss": nan}, step=6)
    exporter.run.sink.saved(6)
    exporter.run.end(RuntimeError("nan"))
    assert exporter.state is RunState.FAILED
    assert exporter.snapshot.value("rl_last_good_checkpoint_step") == 5
