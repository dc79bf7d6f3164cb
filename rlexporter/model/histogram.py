"""Exact histograms as frozen values: bucket counts, with NaN and infinities counted apart. Standard library only."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from typing import NamedTuple

NONFINITE_KINDS = ("nan", "+inf", "-inf")
"""Label values of ``rl_nonfinite_values_total{kind}``."""
MOST_BOUNDS = 24
"""The most buckets of a histogram, without the infinite one: a device has room for so many."""


class Nonfinite(NamedTuple):
    """The numbers of NaN, +inf and -inf among some values. Falsy if all of them are 0."""

    nan: int = 0
    positive: int = 0
    negative: int = 0

    def __add__(self, other: Nonfinite) -> Nonfinite:  # type: ignore[override] # a tuple would be put behind it
        return Nonfinite(self.nan + other.nan, self.positive + other.positive, self.negative + other.negative)

    def __bool__(self) -> bool:
        return any(self)

    def by_kind(self) -> tuple[tuple[str, int], ...]:
        """Return the counts with their label values, in the order of ``NONFINITE_KINDS``."""
        return tuple(zip(NONFINITE_KINDS, self, strict=True))

    @staticmethod
    def of(value: float) -> Nonfinite:
        """Classify ``value``; the result is falsy if it is finite."""
        if math.isnan(value):
            return Nonfinite(nan=1)
        if math.isinf(value):
            return Nonfinite(positive=1) if value > 0 else Nonfinite(negative=1)
        return Nonfinite()


NONE = Nonfinite()


class Histogram(NamedTuple):
    """An exact histogram of finite values; NaN and infinities are counted apart, in ``nonfinite``.

    It is a tuple since a step makes dozens: one costs a third of a frozen dataclass.

    ``counts[i]`` is the number of values in ``(bounds[i-1], bounds[i]]``; the last count is of values above every
    bound. ``negative_sum`` is the sum of the absolute values of negative values, so that both sums only grow.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    positive_sum: float = 0.0
    negative_sum: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    nonfinite: Nonfinite = NONE
    outside: int = 0
    """The number of values that the metric cannot have: negative ones, where no bound is negative."""

    @property
    def count(self) -> int:  # type: ignore[override] # that of a tuple counts its items
        """Return the number of finite values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Return the mean of all values, infinities and NaN included; NaN if there are none."""
        bad = self.nonfinite
        if bad is not NONE and bad:
            if bad.nan or (bad.positive and bad.negative):
                return math.nan
            return math.inf if bad.positive else -math.inf
        return self.finite_mean

    @property
    def finite_mean(self) -> float:
        """Return the mean of the finite values; NaN if there are none."""
        count = self.count
        return (self.positive_sum - self.negative_sum) / count if count else math.nan

    @staticmethod
    def empty(bounds: tuple[float, ...]) -> Histogram:
        """Make a histogram without values."""
        return Histogram(bounds, (0,) * (len(bounds) + 1))

    def including(self, value: float) -> Histogram:
        """Return a copy with one more ``value``, which must be finite and one that the metric can have."""
        counts = [*self.counts]
        counts[bisect_left(self.bounds, value)] += 1
        return Histogram(
            self.bounds,
            tuple(counts),
            self.positive_sum + value if value > 0 else self.positive_sum,
            self.negative_sum - value if value < 0 else self.negative_sum,
            value if value < self.minimum else self.minimum,
            value if value > self.maximum else self.maximum,
            self.nonfinite,
            self.outside,
        )

    def __add__(self, other: Histogram) -> Histogram:  # type: ignore[override] # a tuple would be put behind it
        if self.bounds != other.bounds:
            raise ValueError("histograms with different bounds cannot be added")
        return Histogram(
            self.bounds,
            tuple(map(operator.add, self.counts, other.counts)),  # as many: the bounds are the same
            self.positive_sum + other.positive_sum,
            self.negative_sum + other.negative_sum,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            self.nonfinite if other.nonfinite is NONE else self.nonfinite + other.nonfinite,
            self.outside + other.outside,
        )
