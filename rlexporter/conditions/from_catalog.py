"""The signals and the judge of the catalog's conditions, and the series at which a signal is read or shown."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rlexporter.catalog.conditions import CONDITIONS, NONFINITE, SERIES_SIGNALS
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.judge import Judge, Thresholds
from rlexporter.conditions.signals import declared
from rlexporter.conditions.view import ordered
from rlexporter.conditions.watch import STALLED, Watch
from rlexporter.model.condition import Read
from rlexporter.model.metric import Kind, Metric

if TYPE_CHECKING:
    from rlexporter.catalog.questions import Shown

SIGNALS = ordered((*SERIES_SIGNALS, *declared.signals))
"""All signals, in the order of evaluation."""

SIGNAL_NAMED = {signal.name: signal for signal in SIGNALS}
FUNCTIONS = declared.functions


def watch(thresholds: Thresholds | None = None) -> Watch:
    """Make a watch for one run. ``thresholds``: limits that replace those of the catalog."""
    stalled = (thresholds or {}).get(STALLED)
    return Watch(Judge(CONDITIONS, SIGNALS, FUNCTIONS, thresholds), stalled if isinstance(stalled, float) else None)


def series_of(signal: str) -> tuple[str, ...]:
    """Return the Prometheus names at which ``signal`` is read: its own, or those of the signal it is derived from."""
    known = SIGNAL_NAMED[signal]
    own = tuple(source.series for source in known.sources if source.read is not Read.DERIVED)
    return own or NONFINITE.get(signal) or (series_of(known.of) if known.of else ())


def alerts_on(metric: Metric) -> list[str]:
    """Return the alerts that ``metric`` is judged by, in the order of the catalog."""
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
