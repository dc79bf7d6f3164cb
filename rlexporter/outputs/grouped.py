"""Snapshot -> its series by metric, with the labels and the help that every output gives them. Pure."""

from __future__ import annotations

from rlexporter.model.metric import Level, Metric, Series
from rlexporter.model.snapshot import Snapshot

SUMS = {
    "positive_sum": "Sum of the positive values of {}.",
    "negative_sum": "Sum of the absolute negative values of {}.",
}
"""Counters beside a histogram of values that can be negative, whose own sum would fall: the difference is the sum."""


def by_metric(snapshot: Snapshot) -> dict[Metric, list[Series]]:
    """Samples and histograms alike."""
    found: dict[Metric, list[Series]] = {}
    for series in (*snapshot.samples, *snapshot.buckets):
        found.setdefault(series.metric, []).append(series)
    return found


def labels(snapshot: Snapshot, series: Series) -> dict[str, str]:
    """Those of the run, and its own."""
    return {**snapshot.labels, **dict(zip(series.metric.labels, series.labels, strict=True))}


def help_text(metric: Metric) -> str:
    """HELP: what it is, on what level, in which unit, and the TRL keys that it serves."""
    level = "" if metric.level in (Level.STEP, Level.RUN) else f"{metric.level.value} level"
    detail = ", ".join(part for part in (metric.unit, level) if part)
    keys = ", ".join(dict.fromkeys(key.name for key in metric.keys))
    return metric.help + (f" [{detail}]" if detail else "") + (f" TRL: {keys}" if keys else "")
