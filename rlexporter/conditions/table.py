"""The table of conditions and signals. Rules, runbooks, docs and the judge derive from it.

Conditions are in the order from cause to symptom, which rules and docs keep. docs/evidence.md shows what each is needed
for, and docs/alerts.md which runs the limits were set on.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions import completions, data, declare, nonfinite, optimizer, pace, policy, reward
from rlexporter.conditions.nonfinite import NONFINITE
from rlexporter.model.condition import Condition, Read, Signal
from rlexporter.model.metric import Kind, Metric

if TYPE_CHECKING:
    from rlexporter.catalog.questions import Shown

CONDITIONS: tuple[Condition, ...] = (
    *nonfinite.CONDITIONS,
    *data.CONDITIONS,
    *optimizer.WEIGHTS,
    *optimizer.GRADIENT,
    *policy.UPDATES,
    *data.SAMPLER,
    *policy.AT_START,
    *data.REFERENCE,
    *policy.DISTANCE,
    *policy.ENTROPY,
    *optimizer.VALUE,
    *data.ADVANTAGES,
    *reward.FLAT,
    *reward.MOVED,
    *optimizer.FROZEN,
    *policy.FROZEN,
    *completions.CONDITIONS,
    *pace.CONDITIONS,
    *nonfinite.EVALUATION,
)
CONDITION_NAMED = {condition.name: condition for condition in CONDITIONS}
BY_ALERT = {
    alert: tuple(condition for condition in CONDITIONS if condition.alert == alert)
    for alert in dict.fromkeys(condition.alert for condition in CONDITIONS)
}
"""The conditions that raise each alert, in the order of the first of them."""


def ordered(signals: Iterable[Signal]) -> tuple[Signal, ...]:
    """Return the ``signals`` in the order of evaluation: each after those that it is computed from.

    Raises:
        ValueError: a name is declared twice, is not known, or is computed from itself.
    """
    declared = list(signals)
    named = {signal.name: signal for signal in declared}
    if len(named) < len(declared):
        twice = next(each.name for each in declared if named[each.name] is not each)
        raise ValueError(f"the signal {twice} is declared twice")
    order: dict[str, Signal] = {}

    def place(signal: Signal, above: tuple[str, ...]) -> None:
        if signal.name in above:
            raise ValueError(f"{signal.name} is computed from itself: {' of '.join((*above, signal.name))}")
        for name in filter(None, (signal.of, *signal.after)):
            if name not in named:
                raise ValueError(f"{signal.name} is computed from {name}, which is not declared")
            place(named[name], (*above, signal.name))
        order.setdefault(signal.name, signal)

    for signal in declared:
        place(signal, ())
    return tuple(order.values())


SIGNALS = ordered(declare.SIGNALS)
"""All signals, in the order of evaluation."""
SIGNAL_NAMED = {signal.name: signal for signal in SIGNALS}


@cache
def series_of(signal: str) -> tuple[str, ...]:
    """Return the Prometheus names at which ``signal`` is read: its own, or those of the signal it is derived from."""
    known = SIGNAL_NAMED[signal]
    own = tuple(source.series for source in known.sources if source.read is not Read.DERIVED)
    return own or NONFINITE.get(signal) or (series_of(known.of) if known.of else ())


def alerts_on(metric: Metric) -> list[str]:
    """Return the alerts that ``metric`` is judged by, in the order of the table."""
    names = [condition.alert for condition in CONDITIONS if metric.series in series_of(condition.signal)]
    return list(dict.fromkeys(names))


class ShownSeries(NamedTuple):
    """A series at which a number may be read. ``limited``: the limits of the signal are in its unit."""

    series: str
    limited: bool


@cache
def sources(shown: Shown) -> tuple[ShownSeries, ...]:
    """Return where a number is read, the best first: gauges, which agree with the trainer's log, then histograms."""
    if shown.series or not shown.signal:
        return tuple(ShownSeries(name, bool(shown.signal)) for name in shown.series)
    series, limited = [], True
    for source in SIGNAL_NAMED[shown.signal].sources:
        if source.read is Read.DERIVED:
            limited = False  # what comes after it has another unit
        elif source.read in (Read.VALUE, Read.MEAN):
            series.append(ShownSeries(source.series, limited))
    unique = {one.series: one for one in reversed(series)}
    order = [unique[name] for name in dict.fromkeys(one.series for one in series)]
    return tuple(sorted(order, key=lambda one: (not one.limited, NAMED[one.series].kind is Kind.HISTOGRAM)))
