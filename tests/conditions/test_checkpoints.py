"""The last good checkpoint: the newest that was written before anything critical."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from rlexporter.exporter import Exporter
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from tests.conditions.planted import Planted

HEALTHY: dict[str, Any] = {"rl_weight_norm": [1.0]}
POISONED: dict[str, Any] = {"rl_weight_norm": [nan]}


def _good(run: Planted) -> float | None:
    return run.snapshot.value("rl_last_good_checkpoint_step")


def _saved(run: Planted, *steps: int) -> Planted:
    """A healthy run to the last of ``steps``, with a checkpoint at each of them."""
    for step in steps:
        run.healthy(step - run.step)
        run.store.saved(step)
    return run


def test_it_is_known_with_the_next_step() -> None:
    """Absent while there is none; what its own step still shows is waited for."""
    run = _saved(Planted("grpo"), 10)
    assert _good(run) is None
    run.store.record({"epoch": 1.0}, 10)
    assert _good(run) is None
    run.line({})
    assert _good(run) == 10
    _saved(run, 20)
    assert _good(run) == 10
    run.line({})
    assert _good(run) == 20


def test_a_checkpoint_before_the_step_of_a_nan_is_good() -> None:
    """Even the one right before; not one of that step or later."""
    run = _saved(Planted("grpo"), 10, 20)
    run.line({"grad_norm": nan})
    run.store.saved(21)
    assert _good(run) == 20
    for _ in range(4):
        run.line({"grad_norm": nan})
    run.store.saved(25)
    run.line({"grad_norm": nan})
    assert _good(run) == 20
    assert run.snapshot.value("rl_last_checkpoint_step") == 25


def test_one_of_the_step_itself_is_not_even_where_it_ends_at_once() -> None:
    """A NaN in one step only: the checkpoint of that step has what it did."""
    run = _saved(Planted("grpo"), 10)
    run.line({}, seen=HEALTHY)
    run.line({"grad_norm": nan}, seen=HEALTHY)
    run.store.saved(12)
    run.line({}, seen=HEALTHY)
    assert _good(run) == 10
    run.store.saved(13)
    run.line({}, seen=HEALTHY)
    assert _good(run) == 13


def test_after_a_nan_the_weights_must_have_been_seen() -> None:
    """That nothing is NaN any more does not say that the weights are numbers: a trainer may hide it."""
    run = _saved(Planted("grpo"), 10)
    run.line({"loss": nan})
    _saved(run, 16).healthy(2)
    assert _good(run) == 10
    run.line({}, seen=HEALTHY)
    _saved(run, 25).line({})
    assert _good(run) == 25


def test_weights_that_are_nan_stay_so() -> None:
    """Seen in every step, and in none a number."""
    run = _saved(Planted("grpo"), 10)
    run.line({"loss": nan}, seen=HEALTHY)
    for _ in range(6):
        run.line({}, seen=POISONED)
        assert _good(run) == 10
        run.store.saved(run.step)


def test_any_critical_condition_counts_while_it_holds() -> None:
    """The entropy is gone and comes back: what was saved meanwhile is never good, what is saved then is."""
    run = _saved(Planted("grpo"), 10)
    for _ in range(10):
        run.line({"entropy": 0.001})
    assert run.began["entropy_collapsed", "critical"] == 15
    run.store.saved(20)
    run.line({"entropy": 0.001})
    assert _good(run) == 10
    run.healthy(10)
    assert _good(run) == 10
    run.store.saved(31)
    run.line({})
    assert _good(run) == 31


def test_a_warning_does_not() -> None:
    """A person may look at it today."""
    run = _saved(Planted("grpo"), 20)
    for _ in range(10):
        run.line({"completions/clipped_ratio": 0.45})
    assert {severity for _, severity in run.began} == {"info", "warning"}
    run.store.saved(30)
    run.line({"completions/clipped_ratio": 0.45})
    assert _good(run) == 30


def test_a_resumed_run_starts_with_its_own_checkpoint() -> None:
    """At once, before the first step, unless that shows that it was bad; a run from scratch has none."""
    run = Planted("grpo")
    run.begin(40)
    assert _good(run) == 40
    run.line({}, seen=HEALTHY)
    run.line({"grad_norm": nan}, seen=HEALTHY)
    assert _good(run) == 40
    run.begin(0)
    assert _good(run) is None
    run.begin(40)
    assert _good(run) == 40
    run.line({}, seen=POISONED)
    assert _good(run) is None


@pytest.mark.parametrize(("step", "good"), [(10, None), (11, 10)])
def test_counts_that_come_late_are_of_their_own_step(step: int, good: int | None) -> None:
    """A checkpoint is not good for what a GPU has counted in its step, though that comes with the next one."""
    run = _saved(Planted("grpo"), 10)
    run.late({"rl_grad_norm": [nan]}, step)
    run.line({})
    assert run.began["nonfinite_grad", "critical"] == run.step
    assert _good(run) == good


def test_counts_that_come_later_still_take_it_back() -> None:
    """A GPU that is two steps behind: the checkpoint before is the good one again."""
    run = _saved(Planted("grpo"), 10, 20)
    run.line({})
    assert _good(run) == 20
    run.late({"rl_grad_norm": [nan]}, 20)
    run.line({})
    assert _good(run) == 10


@pytest.mark.parametrize(("last", "good"), [({}, 20), ({"grad_norm": nan}, 10)])
def test_the_end_of_a_run_decides(last: dict[str, float], good: int) -> None:
    """No step comes after its last checkpoint."""
    run = _saved(Planted("grpo"), 10).healthy(9)
    run.line(last)
    run.store.saved(20)
    run.store.settle()
    assert _good(run) == good


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
