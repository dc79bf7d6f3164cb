"""Reads a signal from the data of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlexporter.conditions.declare import Derive
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.view import View, finite_mean, value_range
from rlexporter.model.condition import Read, Source
from rlexporter.model.histogram import Histogram

Getter = Callable[[View, Memory], "float | None"] | str
"""A function, or the name of a number that is used as it is."""


def getter(source: Source, derive: Mapping[str, Derive]) -> Getter:
    """Return the getter of ``source``; a function returns None if the step does not have it."""
    series = source.series
    if source.read is Read.DERIVED:
        return derive[series]
    if source.read is Read.VALUE:
        return series
    of = _of(source)

    def read(view: View, memory: Memory) -> float | None:
        counted = view.counted.get(series)
        return of(counted) if counted is not None and counted.count else None

    return read


def _of(source: Source) -> Callable[[Histogram], float | None]:
    if source.read is Read.MEAN:
        return finite_mean
    if source.read is Read.MINUS_MEAN:
        return lambda counted: -finite_mean(counted)
    if source.read is Read.SPREAD:
        return value_range
    low, high = source.outside

    def share(counted: Histogram) -> float:
        pairs = zip(counted.bounds, counted.counts, strict=False)
        return 1.0 - sum(number for bound, number in pairs if low < bound <= high) / counted.count

    return share
