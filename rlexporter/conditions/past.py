"""The past of a signal, bounded and of finite numbers only, and what relative limits measure in it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from operator import sub
from statistics import median

from rlexporter.model.condition import Baseline

KEPT = 256
"""The number of observations that are remembered at least; the longest baseline needs 70."""
_MOST = 2 * KEPT
NOISE = 1.128
"""The mean difference of two normal values, in standard deviations."""
FIRST = 30
"""The number of first observations of a run that are never forgotten."""

START = 5
"""The number of first observations that `Baseline.START` uses."""
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
        self._starts: dict[tuple[int, int], float] = {}
        self._medians: dict[tuple[int, int], float] = {}
        self._rough = 0, 0.0
        self.low = float("inf")
        self.high = float("-inf")
        self.best: float | None = None
        """The highest median of 10 observations in a row."""

    def add(self, value: float) -> None:
        values = self.values
        values.append(value)
        self.newest = value
        self.count += 1
        if not self.low <= value <= self.high:
            self.low, self.high = min(self.low, value), max(self.high, value)
        if len(values) > _MOST:  # a list that is cut now and then has slices, which cost less than a deque's
            self._first = self.first
            del values[:KEPT]

    @property
    def first(self) -> list[float]:
        """Return the first `FIRST` observations; fewer if there are fewer."""
        return self._first or self.values[:FIRST]

    def start(self, n: int) -> float:
        """Return the median of the first ``n`` observations, of which there must be one; it is computed once."""
        return self._median_of_first(0, n)

    def median(self, n: int, lag: int = 0) -> float:
        """Return the median of `last`, of which there must be one; it is computed once for signals that share it."""
        key = n, self.count - lag
        known = self._medians.get(key)
        if known is None:
            if len(self._medians) >= KEPT:
                self._medians.clear()
            known = self._medians[key] = median(self.last(n, lag))
        return known

    def _median_of_first(self, begin: int, end: int) -> float:
        known = self._starts.get((begin, end))
        if known is None:
            known = median(self.first[begin:end])
            if self.count >= end:
                self._starts[begin, end] = known
        return known

    def roughness(self) -> float:
        """Return the mean difference of neighbors among the last 60 observations, of which there must be two."""
        count, known = self._rough
        if count != self.count:
            recent = self.last(60)
            known = sum(map(abs, map(sub, recent[1:], recent))) / (len(recent) - 1)
            self._rough = self.count, known
        return known

    def last(self, n: int, lag: int = 0) -> list[float]:
        """Return the last ``n`` observations, of 1 or more, before the newest ``lag``; fewer if there are fewer."""
        if not lag:
            return self.values[-n:]
        end = len(self.values) - lag
        return self.values[max(0, end - n) : end] if end > 0 else []

    def note_best(self) -> float | None:
        """Update and return the best median of 10 observations in a row; None before there are 10."""
        if self.count >= 10:
            now = self.median(10)
            self.best = now if self.best is None else max(self.best, now)
        return self.best


@dataclass(slots=True)
class Pace:
    """How long the parts of a step take, and which one makes it slow."""

    parts: defaultdict[str, Past] = field(default_factory=lambda: defaultdict(Past))
    """The seconds of each phase of a step, and of each reward function in it."""
    slow: deque[int] = field(default_factory=deque)
    """Those of the last ten steps that took far longer than usual."""
    grown: dict[str, int] = field(default_factory=dict)
    """The part that makes the current step slow, with the step since which one does; empty if none does."""


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the median absolute deviation scaled to a normal distribution's standard deviation."""
    middle = median(values)
    return middle, 1.4826 * median([abs(value - middle) for value in values])


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; `statistics.pstdev` is exact, and costs a hundred times as much."""
    mean = sum(values) / len(values)
    return sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile, by nearest rank from below."""
    return sorted(values)[int(0.9 * (len(values) - 1))]


def measure(baseline: Baseline) -> Callable[[Past], float | None] | None:
    """Return the function that measures a past, and gives None while it is too short; None for `Baseline.FIXED`."""
    return _MEASURES.get(baseline)


def refresh(baseline: Baseline) -> int:
    """Return the number of observations for which a measure stays good: what is new is left out of most anyway."""
    return 1 if baseline is Baseline.PREVIOUS else 5


def _previous(past: Past) -> float | None:
    return past.values[-2] if past.count > 1 and past.values[-2] > 0 else None


def _start(past: Past) -> float | None:
    return past.start(START) if past.count > START else None


def _p90(past: Past) -> float | None:
    # Half of the gradients of a healthy run can be 0, where groups have no spread of reward: they say nothing of scale.
    own = [value for value in past.last(50, 5) if value]
    return p90(own) if len(own) >= WARM else None


def _before(past: Past) -> float | None:
    own = past.last(30, 20)
    return median(own) if len(own) >= WARM else None


def _recent(past: Past) -> float | None:
    own = past.last(30, 2)
    return median(own) if len(own) >= WARM else None


_MEASURES: dict[Baseline, Callable[[Past], float | None]] = {
    Baseline.PREVIOUS: _previous,
    Baseline.START: _start,
    Baseline.P90: _p90,
    Baseline.RECENT: _recent,
    Baseline.BEFORE: _before,
}
