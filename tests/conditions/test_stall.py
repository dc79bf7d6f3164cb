"""How long a run may go without a step, by what is under way."""

from __future__ import annotations

import pytest

from rlexporter import Exporter
from rlexporter.conditions.stall import Patience
from rlexporter.model.step import RunFacts, StepUpdate
from tests.conditions.planted import Planted


def test_the_limit_follows_the_pace() -> None:
    """Half an hour before the first step, then ten times the median, never less than ten minutes."""
    patience = Patience()
    assert patience.limit() == 1800.0
    for seconds in (1.0, 2.0, 3.0):
        patience.step(seconds)
    assert patience.limit() == 600.0
    for _ in range(10):
        patience.step(300.0)
    assert patience.limit("rollout") == 3000.0


def test_an_evaluation_may_take_longer() -> None:
    """An hour while none was measured, then ten times its own median; never less than a step may take."""
    patience = Patience()
    patience.step(20.0)
    assert patience.limit("eval") == 3600.0
    assert patience.limit("update") == 600.0
    patience.phase("eval", 1000.0)
    assert patience.limit("eval") == 10000.0
    patience.phase("save", 1.0)
    assert patience.limit("save") == 600.0


def test_it_is_served(any_port: None) -> None:
    """From the start of the run, by phase, with the minimum that a person has set."""
    exporter = Exporter(run="stall", algorithm="grpo", thresholds={"run_stalled": 5})
    exporter.run.begin(RunFacts(algorithm="grpo"))
    assert exporter.snapshot.value("rl_stall_after_seconds") == 15.0

    exporter.run.sink.advance(StepUpdate(step=1, duration=2.0))
    assert exporter.snapshot.value("rl_stall_after_seconds") == 20.0
    with exporter.run.sink.phase("eval"):
        assert exporter.snapshot.value("rl_stall_after_seconds") == 30.0
    assert exporter.snapshot.value("rl_stall_after_seconds") == 20.0
    exporter.close()


@pytest.mark.parametrize("seconds", [0.1, 20.0, 600.0])
def test_steps_without_a_measured_duration(seconds: float) -> None:
    """The time between two lines is what a step takes, and an evaluation between them is not."""
    run = Planted("grpo")
    for _ in range(20):
        run.line({}, seconds=seconds)
    run.clock += 5000.0
    run.store.record({"eval_reward": 1.0, "eval_runtime": 5000.0}, run.step)
    run.line({}, seconds=seconds)

    assert run.snapshot.value("rl_stall_after_seconds") == pytest.approx(max(600.0, 10 * seconds))
    assert run.began == {}
