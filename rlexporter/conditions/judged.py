"""Finds the alerts that a metric is judged by."""

from __future__ import annotations

from rlexporter.catalog import CONDITIONS, NONFINITE
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.condition import Read
from rlexporter.model.metric import Metric


def series_of(signal: str) -> tuple[str, ...]:
    """Return the Prometheus names at which ``signal`` is read: its own, or those of the signal it is derived from."""
    found = SIGNAL_NAMED[signal]
    own = tuple(source.series for source in found.sources if source.read is not Read.DERIVED)
    return own or NONFINITE.get(signal) or (series_of(found.of) if found.of else ())


def alerts_on(metric: Metric) -> list[str]:
    """Return the alerts that ``metric`` is judged by, in the order of the catalogue."""
    names = [condition.alert for condition in CONDITIONS if metric.series in series_of(condition.signal)]
    return list(dict.fromkeys(names))
