"""Series and histograms as JSON, in a recording and in a state file: written and parsed.

``{"rl_reward_function_dist{reward_function=\"length\"}": {"counts": [...], "positive_sum": 1.0, ...}}``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlexporter.catalog import buckets
from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram, Nonfinite
from rlexporter.model.metric import Series


def plain(value: Any) -> Any:
    """Return ``value`` as json can write it: histograms by series, arrays as lists, any other object as its type."""
    if isinstance(value, Histogram):
        counts = {"counts": value.counts, "positive_sum": value.positive_sum, "negative_sum": value.negative_sum}
        bad = {kind: number for kind, number in value.nonfinite.by_kind() if number}
        extremes = {"min": value.minimum, "max": value.maximum} if value.count else {}
        return {**counts, **extremes, **bad, **({"outside": value.outside} if value.outside else {})}
    if isinstance(value, Mapping):
        return {series_text(k) if isinstance(k, Series) else str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return f"<{type(value).__name__}>"


def series_text(series: Series) -> str:
    """Return ``series`` as text: ``rl_reward_function_dist{reward_function="length"}``."""
    labels = ",".join(
        f"{name}={json.dumps(value)}" for name, value in zip(series.metric.labels, series.labels, strict=True)
    )
    return series.metric.series + (f"{{{labels}}}" if labels else "")


def parse(recorded: Mapping[str, Mapping[str, Any]], bounds: Mapping[str, Any]) -> dict[Series, Histogram]:
    """Return the ``recorded`` histograms by series. ``bounds`` are those of the recording, by name.

    Leaves out series that the catalog lacks, and those whose bounds differ from its own, unless users may set them.
    """
    histograms = {}
    for text, counts in recorded.items():
        named = series(text)
        if named is None:
            continue
        metric, labels = named
        own = tuple(map(float, bounds.get(metric.series, metric.bounds)))
        if own != metric.bounds and metric.short_name in buckets.ADJUSTABLE:
            metric = buckets.with_bounds(metric.series, own)
        if metric.bounds == own and len(counts["counts"]) == len(own) + 1:
            histograms[Series(metric, labels)] = _buckets(own, counts)
    return histograms


def series(text: str) -> Series | None:
    """Return the series that ``text`` names, or None if the catalog lacks it."""
    name, _, rest = text.partition("{")
    metric = NAMED.get(name)
    if metric is None:
        return None
    labels = dict(_labels(rest.removesuffix("}")))
    return Series(metric, tuple(labels.values())) if tuple(labels) == metric.labels else None


def _labels(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of ``a="x",b="y"``. The values are JSON strings, which mark their own ends."""
    decoder = json.JSONDecoder()
    while text:
        name, _, rest = text.partition("=")
        value, end = decoder.raw_decode(rest)
        yield name, str(value)
        text = rest[end:].removeprefix(",")


def _buckets(bounds: tuple[float, ...], counts: Mapping[str, Any]) -> Histogram:
    empty = Histogram.empty(bounds)
    return Histogram(
        bounds,
        tuple(map(int, counts["counts"])),
        float(counts["positive_sum"]),
        float(counts["negative_sum"]),
        float(counts.get("min", empty.minimum)),
        float(counts.get("max", empty.maximum)),
        Nonfinite(int(counts.get("nan", 0)), int(counts.get("+inf", 0)), int(counts.get("-inf", 0))),
        int(counts.get("outside", 0)),
    )
