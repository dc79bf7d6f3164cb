"""The past of a signal: bounded, finite numbers only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from statistics import median

KEPT = 256
"""The number of observations that are remembered; the longest baseline needs 60."""
NOISE = 1.128
"""The mean difference of two normal values, in standard deviations."""
FIRST = 30
"""The number of first observations of a run that are never forgotten."""


class Past:
    """The observations of one signal, oldest first, the current one included."""

    __slots__ = ("_moved", "best", "count", "first", "high", "low", "values")

    def __init__(self) -> None:
        self.values: deque[float] = deque(maxlen=KEPT)
        self.first: list[float] = []
        self.count = 0
        self._moved = 0.0
        self.low = float("inf")
        self.high = float("-inf")
        self.best: float | None = None
        """The highest median of 10 observations in a row."""

    def add(self, value: float) -> None:
        if self.count:
            self._moved += abs(value - self.values[-1])
        self.values.append(value)
        self.count += 1
        if self.count <= FIRST:
            self.first.append(value)
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value

    @property
    def newest(self) -> float:
        return self.values[-1]

    @property
    def noise(self) -> float:
        """Return the standard deviation from step to step over the whole run; 0 before there are two observations."""
        return self._moved / (self.count - 1) / NOISE if self.count > 1 else 0.0

    def last(self, n: int, lag: int = 0) -> list[float]:
        """Return the last ``n`` observations before the newest ``lag``; fewer if there are fewer."""
        end = len(self.values) - lag
        return list(islice(self.values, max(0, end - n), max(0, end)))

    def note_best(self) -> float | None:
        """Update and return the best median of 10 observations in a row; None before there are 10."""
        if self.count >= 10:
            now = median(self.last(10))
            self.best = now if self.best is None else max(self.best, now)
        return self.best


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the median absolute deviation scaled to a normal distribution's standard deviation."""
    middle = median(values)
    return middle, 1.4826 * median([abs(value - middle) for value in values])


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile, by nearest rank from below."""
    return sorted(values)[int(0.9 * (len(values) - 1))]
