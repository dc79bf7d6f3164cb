"""Buckets that the user sets, for histograms on the scale of the task: rewards, lengths, advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from math import isfinite

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.model.histogram import MOST_BOUNDS
from rlexporter.model.metric import Kind, Metric

_JUDGED = frozenset(("rl_policy_ratio_dist", "rl_reward_group_range_dist"))
"""The histograms whose buckets the conditions count in."""
ADJUSTABLE = {
    metric.short_name: metric for metric in CATALOG if metric.kind is Kind.HISTOGRAM and metric.series not in _JUDGED
}
"""The histograms that may have other buckets, by the name that `Exporter.observe` has for them."""


def parse(value: object) -> dict[str, tuple[float, ...]]:
    """Parse upper bounds by the name of their histogram, from a mapping or a text such as ``reward=0,0.5,1; ...``.

    Raises: ValueError that says what is wrong.
    """
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(";") if part.strip()]
        value = {name.strip(): text.split(",") for name, _, text in parts}
    if not isinstance(value, Mapping):
        raise ValueError("must look like reward=0,0.5,1;completion_length=64,256,1024, or be a mapping of such lists")
    return {name: _bounds(str(name), given) for name, given in value.items()}


def even(longest: int) -> tuple[float, ...]:
    """Return bounds for lengths up to ``longest``: 12 to 24 even parts, or each length where there are fewer."""
    parts = next((parts for parts in range(MOST_BOUNDS, MOST_BOUNDS // 2 - 1, -1) if longest % parts == 0), MOST_BOUNDS)
    return tuple(sorted({float(-(-longest * part // parts)) for part in range(1, parts + 1)}))


def _bounds(name: str, given: object) -> tuple[float, ...]:
    metric = ADJUSTABLE.get(name)
    if metric is None:
        close = get_close_matches(name, ADJUSTABLE, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(ADJUSTABLE)}"
        raise ValueError(f"{name!r} is no histogram whose buckets can be set; {hint}")
    try:
        bounds = tuple(map(float, given)) if isinstance(given, (list, tuple)) else ()
    except (TypeError, ValueError):
        bounds = ()
    if not bounds or not all(map(isfinite, bounds)) or any(a >= b for a, b in pairwise(bounds)):
        raise ValueError(f"{name} needs numbers that ascend, such as 0,0.25,0.5,1")
    if metric.signed and bounds[0] >= 0:
        bounds = (min(metric.bounds), *bounds)  # or else what is negative would count as impossible
    elif not metric.signed and bounds[0] < 0:
        raise ValueError(f"{name} is never negative, so no bound may be")
    if len(bounds) > MOST_BOUNDS:
        raise ValueError(f"{name} has {len(bounds)} bounds: at most {MOST_BOUNDS}, since each is a series")
    return bounds


def catalog(buckets: Mapping[str, Sequence[float]]) -> tuple[Metric, ...]:
    """Return the catalog in which histograms have these ``buckets``, by the names of `ADJUSTABLE`."""
    own = {ADJUSTABLE[name].series: tuple(bounds) for name, bounds in buckets.items()}
    return tuple(
        with_bounds(metric.series, own[metric.series]) if metric.series in own else metric for metric in CATALOG
    )


@lru_cache(maxsize=256)
def with_bounds(series: str, bounds: tuple[float, ...]) -> Metric:
    """Return the histogram ``series`` with other bounds; the same object for the same ones."""
    return replace(NAMED[series], bounds=bounds)
