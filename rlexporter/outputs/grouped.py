"""Snapshot -> its series by metric, with the labels and help texts that every output uses. Pure."""

from __future__ import annotations

from rlexporter.model.metric import Level, Metric, Series
from rlexporter.model.snapshot import Snapshot

SUMS = {
    "positive_sum": "Sum of the positive values of {}.",
    "negative_sum": "Sum of the absolute negative values of {}.",
}
"""Two counters beside a histogram that takes negative values, whose own sum could fall: their difference is it."""


def by_metric(snapshot: Snapshot) -> dict[Metric, list[Series]]:
    """Return all series of ``snapshot``, samples and histograms alike, by metric."""
    found: dict[Metric, list[Series]] = {}
    for series in (*snapshot.samples, *snapshot.buckets):
        found.setdefault(series.metric, []).append(series)
    return found


def labels(snapshot: Snapshot, series: Series) -> dict[str, str]:
    """Return the labels of the run, and those of ``series`` itself."""
    return {**snapshot.labels, **dict(zip(series.metric.labels, series.labels, strict=True))}


def help_text(metric: Metric) -> str:
    """Return the HELP text of ``metric``: its meaning, unit, level, and the TRL keys that feed it."""
    level = "" if metric.level in (Level.STEP, Level.RUN) else f"{metric.level.value} level"
    detail = ", ".join(part for part in (metric.unit, level) if part)
    keys = ", ".join(dict.fromkeys(key.name for key in metric.keys))
    return metric.help + (f" [{detail}]" if detail else "") + (f" TRL: {keys}" if keys else "")
