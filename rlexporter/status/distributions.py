"""The histograms of a run: of all of it, and of its last steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.model.histogram import Histogram, Nonfinite
from rlexporter.model.metric import Series
from rlexporter.status.samples import Number, number


def since(now: Histogram, before: Histogram | None) -> Histogram:
    """Return what ``now`` counts and ``before`` does not; all of it where that is no earlier state of ``now``.

    Its smallest and largest value are those of the whole.
    """
    if before is None or before.bounds != now.bounds or before.count > now.count:
        return now
    bad, had = now.nonfinite, before.nonfinite
    return Histogram(
        now.bounds,
        tuple(mine - its for mine, its in zip(now.counts, before.counts, strict=True)),
        now.positive_sum - before.positive_sum,
        now.negative_sum - before.negative_sum,
        now.minimum,
        now.maximum,
        Nonfinite(bad.nan - had.nan, bad.positive - had.positive, bad.negative - had.negative),
    )


def as_json(
    buckets: Mapping[Series, Histogram],
    before: Mapping[Series, Histogram],
    steps: int | None,
    language: Language = ENGLISH,
) -> list[dict[str, Any]]:
    """Return the entries of the document. ``before``: the histograms ``steps`` steps ago; the help in ``language``."""
    ordered = sorted(buckets.items(), key=lambda each: (each[0].metric.series, each[0].labels))
    return [
        {**_entry(series, found, since(found, before.get(series)), steps), "help": language(series.metric.help)}
        for series, found in ordered
    ]


def _entry(series: Series, found: Histogram, recent: Histogram, steps: int | None) -> dict[str, Any]:
    metric = series.metric
    edges: list[Number] = [number(bound) for bound in found.bounds]
    return {
        "series": metric.series,
        "labels": dict(zip(metric.labels, series.labels, strict=True)),
        "unit": metric.unit,
        "edges": [*edges, "+Inf"],
        "counts": list(found.counts),
        "recent": list(recent.counts),
        "recent_steps": steps,
        "count": found.count,
        "sum": number(found.positive_sum - found.negative_sum),
        "nonfinite": dict(found.nonfinite.by_kind()) if found.nonfinite else None,
    }
