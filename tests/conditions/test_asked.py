"""Signals are asked for in the steps only that hold something that they read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions import judge as judging
from rlexporter.conditions.declare import COMPUTED
from rlexporter.conditions.detectors import Past
from rlexporter.conditions.judge import Judge, SignalState
from rlexporter.conditions.table import CONDITIONS, SIGNALS
from rlexporter.conditions.view import Context, View
from rlexporter.model.condition import Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Transition
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.model.step import RunFacts
from rlexporter.tensors.host import count

READING = [source for signal in SIGNALS for source in signal.sources if source.derived and source.reads]
REWARDS = {source.series for signal in SIGNALS if signal.name in ("reward", "reward_std") for source in signal.sources}


def views(seed: int, steps: int) -> Iterator[View]:
    """Make a run whose steps each hold another part of all series, and whose reward weights change now and then."""
    chance = random.Random(seed)
    gauges = [metric for metric in NAMED.values() if metric.kind is Kind.GAUGE]
    seen = [metric for metric in NAMED.values() if metric.kind is not Kind.INFO]
    often = {metric: chance.choice((0.0, 0.2, 0.9, 1.0)) for metric in NAMED.values()}
    for step in range(1, steps + 1):
        here = [metric for metric in gauges if chance.random() < often[metric]]
        numbers = {metric.series: chance.gauss(1.0, 0.5) for metric in here if not metric.labels}
        functions = {
            metric.series: dict.fromkeys(("a", "a/mean", "mean"), chance.random()) for metric in here if metric.labels
        }
        tensors: dict[Series, Histogram] = {}
        for metric in seen:
            if chance.random() < 0.5 * often[metric]:
                labels = ("a",) * len(metric.labels)
                values = [chance.choice((0.0, chance.random()))] * 8 if chance.random() < 0.3 else [0.1, 0.4, 0.7]
                tensors[Series(metric, labels)] = count(values, metric.bounds)
        if step % 40 in (0, 4) and seed % 2:  # the reward begins anew in a step without one
            numbers = {name: number for name, number in numbers.items() if name not in REWARDS}
            tensors = {series: counted for series, counted in tensors.items() if series.metric.series not in REWARDS}
        weights = Series(NAMED["rl_reward_function_weight"], ("a",))
        tensors[weights] = count([float(step % 40 > 3)], weights.metric.bounds)
        anomalies = AnomalyCounts()
        if chance.random() < 0.1:
            name = chance.choice(("rl_grad_norm", "rl_reward_function_dist", "rl_value_loss", "rl_entropy"))
            anomalies.nonfinite[name] = chance.randint(1, 3)
        later = chance.random() < 0.1  # more of the step before
        yield View(step - later, not later, chance.random(), 1, anomalies, numbers, functions, tensors)


def judged(seed: int) -> list[tuple[list[Transition], dict[Series, float], tuple[str, float] | None]]:
    """Judge such a run as GRPO; return of each step what changed, the numbers, and what is nearest to a limit."""
    judge = Judge(CONDITIONS, SIGNALS, COMPUTED)
    judge.begin(RunFacts(algorithm="grpo", step=0))
    found = []
    for view in views(seed, 150):
        changed = sorted(judge.step(view), key=repr)
        found.append((changed, dict(sorted(judge.values.items(), key=repr)), judge.nearest()))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_who_is_not_asked_would_have_said_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is judged the same, number for number, as if every signal were asked for in every step."""
    asked = judged(seed)
    assert sum(len(changed) for changed, _, _ in asked) > 100

    def everyone(states: Iterable[SignalState], view: View) -> list[SignalState]:
        return list(states)

    monkeypatch.setattr(judging, "awake", everyone)
    assert repr(asked) == repr(judged(seed))


@pytest.mark.parametrize("source", READING, ids=[source.series for source in READING])
def test_a_function_says_nothing_without_what_it_reads(source: Source) -> None:
    """Nothing of what a function declares to read is there: it has no number."""
    view = View(1, True, 1.0, 1, AnomalyCounts())
    past = {signal.name: Past() for signal in SIGNALS}
    assert COMPUTED[source.series]()(view, Context(past)) is None
