"""The past of a number: bounded, and of finite values only."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from operator import sub
from statistics import median

KEPT = 256
"""The number of observations that are remembered at least; the longest baseline needs 70."""
MOST = 2 * KEPT
NOISE = 1.128
"""The mean difference of two normal values, in standard deviations."""
FIRST = 30
"""The number of first observations of a run that are never forgotten."""

START = 5
"""The number of first observations whose median is the start of a number."""
WARM = 10
"""The number of observations from which a run has a past that can be measured."""


class Past:
    """The observations of one signal, oldest first, the current one included."""

    __slots__ = ("_first", "_medians", "_rough", "_starts", "best", "count", "high", "low", "newest", "values")

    def __init__(self) -> None:
        self.values: list[float] = []
        self.newest = float("nan")
        self._first: list[float] = []
        self.count = 0
        self._starts: dict[int, float] = {}
        self._medians: dict[tuple[int, int], float] = {}
        self._rough = 0, 0.0
        self.low = float("inf")
        self.high = float("-inf")
        self.best: float | None = None
        """The highest median of 10 observations in a row."""

    def add(self, value: float) -> None:
        """Add the newest observation; the judge does the same in its loop, where a call for each signal costs most."""
        self.values.append(value)
        self.newest = value
        self.count += 1
        if not self.low <= value <= self.high or len(self.values) > MOST:
            self.settle()

    def settle(self) -> None:
        """Take the newest value into the extremes, and keep the list short."""
        self.low, self.high = min(self.low, self.newest), max(self.high, self.newest)
        if len(self.values) > MOST:  # a list that is cut now and then has slices, which cost less than a deque's
            self._first = self.first
            del self.values[:KEPT]

    @property
    def first(self) -> list[float]:
        """Return the first `FIRST` observations; fewer if there are fewer."""
        return self._first or self.values[:FIRST]

    def start(self, n: int) -> float:
        """Return the median of the first ``n`` observations, of which there must be one; it is computed once."""
        known = self._starts.get(n)
        if known is None:
            known = median(self.first[:n])
            if self.count >= n:
                self._starts[n] = known
        return known

    def median(self, n: int, lag: int = 0) -> float:
        """Return the median of `last`, of which there must be one; it is computed once for signals that share it."""
        key = n, self.count - lag
        known = self._medians.get(key)
        if known is None:
            if len(self._medians) >= KEPT:
                self._medians.clear()
            known = self._medians[key] = median(self.last(n, lag) if lag else self.values[-n:])
        return known

    def roughness(self) -> float:
        """Return the mean difference of neighbors among the last 60 observations, of which there must be two."""
        count, known = self._rough
        if count != self.count:
            recent = self.values[-60:]
            known = sum(map(abs, map(sub, recent[1:], recent))) / (len(recent) - 1)
            self._rough = self.count, known
        return known

    def last(self, n: int, lag: int) -> list[float]:
        """Return the last ``n`` observations before the newest ``lag``; fewer if there are fewer."""
        end = len(self.values) - lag
        return self.values[max(0, end - n) : end] if end > 0 else []

    def note_best(self) -> float | None:
        """Update and return the best median of 10 observations in a row; None before there are 10."""
        if self.count >= 10:
            now = self.median(10)
            self.best = now if self.best is None else max(self.best, now)
        return self.best


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the median absolute deviation scaled to a normal distribution's standard deviation."""
    middle = median(values)
    return middle, 1.4826 * median([abs(value - middle) for value in values])


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; `statistics.pstdev` is exact, and costs a hundred times as much."""
    mean = sum(values) / len(values)
    return sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))
