"""The six ways in which a number can be wrong. Each detector is of one number of one run, and has a past of its own.

`Level` and `Ratio` are what limits are measured by, and can be drawn. `Shift`, `Still`, `Gone` and `Apart` look for
what no limit on a single value shows; a signal with one of them has its result as its value. The rates of false alarms
in their docstrings are of independent normal values, by tests/conditions/test_detectors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import log10, sqrt
from operator import sub
from statistics import median
from typing import Generic, TypeVar

from rlexporter.model.condition import Limit, Persistence, Severity

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


ONCE, SOME, LASTING, MOSTLY = Persistence
Number = float | Mapping[str, float]
T = TypeVar("T")
MOST_MEMBERS = 100
"""The members of a labelled series that are followed in a run: reward functions, agents, data sets, phases."""


def info(value: Number | None = None, lasts: Persistence = ONCE) -> Limit:
    """Make an informational limit: what is beyond it asks for nothing. Without a ``value`` it is one of a finding."""
    return Limit(Severity.INFO, value, lasts)


def warning(value: Number | None = None, lasts: Persistence = ONCE, *, learning: bool = False) -> Limit:
    """Make a limit that asks for a look today. ``learning``: nothing is wrong while learning explains the number."""
    return Limit(Severity.WARNING, value, lasts, learning)


def critical(value: Number | None = None, lasts: Persistence = ONCE, *, learning: bool = False) -> Limit:
    """Make a limit that asks for a person now."""
    return Limit(Severity.CRITICAL, value, lasts, learning)


# What a limit is measured by


@dataclass(frozen=True)
class Level:
    """Compares a number with fixed limits, in its own unit.

    A limit that no healthy run passes has no false alarms of its own. The delay is that of the persistence.
    """

    limits: tuple[Limit, ...]
    below: bool = False
    after: int = 0
    """The observations that must precede the first judgment."""
    floor: Number = 0.0
    words = ""
    relative = False
    settles = True
    every = 1

    def measure(self, past: Past) -> float | None:
        """Return what limits are multiples of; None while the past is too short."""
        return 1.0


class Own(Enum):
    """The part of its own past that a number is compared with."""

    START = "start"
    RECENT = "recent"


@dataclass(frozen=True)
class Ratio(Level):
    """Compares a number with multiples of its own past, for numbers above 0.

    `Own.START`: the median of its first 5 values. `Own.RECENT`: the ``quantile`` (by nearest rank from below) of its
    last 30 values, without the newest ``lag``; of 10 at least. Above the median 0 does not count. Of log-normal noise
    with a spread of 0.3, a limit of 4 that must be passed once alarms in less than 1 of 10,000 steps. The delay is that
    of the persistence, as long as it is less than ``lag``.
    """

    of: Own = Own.START
    lag: int = 5
    quantile: float = 0.5

    @property
    def words(self) -> str:  # type: ignore[override]
        """Return what limits are multiples of, for a table."""
        if self.of is Own.START:
            return "times its start"
        part = "median" if self.quantile == 0.5 else f"{100 * self.quantile:g}th percentile"
        return f"times the {part} of its last 30 values, without the newest {self.lag}"

    @property
    def relative(self) -> bool:  # type: ignore[override]
        """Return True: limits are multiples."""
        return True

    @property
    def settles(self) -> bool:  # type: ignore[override]
        """Return True if the limits never change once they are known."""
        return self.of is Own.START

    @property
    def every(self) -> int:  # type: ignore[override]
        """Return the observations for which a measure stays good."""
        return min(5, self.lag)

    def measure(self, past: Past) -> float | None:
        """Return the part of the past; None while it is too short."""
        if self.of is Own.START:
            return past.start(START) if past.count > START else None
        own = sorted(past.last(30, self.lag))
        if self.quantile > 0.5:  # half of the gradients of a healthy run can be 0: they say nothing of its scale
            own = [*filter(None, own)]
        return own[int(self.quantile * (len(own) - 1))] if len(own) >= WARM else None


def level(*limits: Limit, below: bool = False, after: int = 0) -> Level:
    """Make a detector for fixed ``limits``, the mildest first."""
    return Level(limits, below, after)


def ratio(
    *limits: Limit,
    of: Own = Own.START,
    below: bool = False,
    after: int = 0,
    floor: Number = 0.0,
    lag: int = 5,
    quantile: float = 0.5,
) -> Ratio:
    """Make a detector for multiples of the number's own past.

    ``floor``: the lowest value of an upper limit, in the unit of the number.
    """
    return Ratio(limits, below, after, floor, of, lag, quantile)


def found(*limits: Limit) -> Level:
    """Make the detector of a finding: it holds as often as each limit says, and has no number."""
    return Level(limits)


# What no single value shows


class Shift:
    """Says that the level of a number has left ``usual``, in its own noise: a two-sided cumulative sum.

    S = max(0, S + |x - usual| - d) for each side, where d is one standard deviation of the values before the newest
    ``unsure`` (E. S. Page, Continuous Inspection Schemes, 1954). An offset is sure once S is above 6 d: of normal noise
    in less than 1 of 1,000 steps, as the noise itself is measured on twenty values at most. An offset of three standard
    deviations is sure after five values. ``least``: the smallest noise that is believed.
    """

    def __init__(self, usual: float = 0.0, least: float = 0.0, kept: int = 20, unsure: int = 3) -> None:
        self.values: list[float] = []
        """The newest ``kept`` values."""
        self._usual, self._least, self._kept, self._unsure = usual, least, kept, unsure
        self._sums = [0.0, 0.0]
        self._counts = [0, 0]

    def add(self, value: float) -> float:
        """Add the newest value; return how far the level is from the usual one, once that is sure, else 0."""
        before = self.values[: -self._unsure]
        self.values = [*self.values[-self._kept + 1 :], value]
        noise = max(self._least, deviation(before)) if len(before) >= WARM else 0.0
        if not noise:
            return 0.0
        return max(self._side(side, sign * (value - self._usual), noise) for side, sign in enumerate((1.0, -1.0)))

    def _side(self, side: int, offset: float, noise: float) -> float:
        total = min(self._sums[side] + offset - noise, 12 * noise)  # bounded, so that it falls again
        self._counts[side] += 1
        if total <= 0.0:
            total, self._counts[side] = 0.0, 0
        self._sums[side] = total
        return noise + total / self._counts[side] if total > 6 * noise else 0.0


class Still:
    """Says how improbable it is that something has been the same so many times in a row, in orders of magnitude.

    That is -log10 of the product of the probabilities. Where the probability of one time is not known, it is estimated
    from what came before the row, by Laplace's rule of succession: (hits + 1) / (trials + ``tosses`` + 1). At a rate of
    one half, 7 orders need 24 times in a row, and are reached by chance in 1 of 10,000,000 rows.

    ``tosses``: the independent parts of an observation that must all agree.
    """

    __slots__ = ("_hits", "_sum", "_tosses", "_trials", "length")

    def __init__(self, tosses: int = 1) -> None:
        self.length = 0
        """The number of times in a row."""
        self._tosses = tosses
        self._hits = self._trials = 0
        self._sum = 0.0

    def add(self, same: bool, chance: float | None = None) -> float:
        """Add an observation; return how improbable the row is. ``chance``: the probability of this one alone."""
        if not same:
            self._trials += self.length + 1
            self._hits += self.length
            self.length, self._sum = 0, 0.0
            return 0.0
        self.length += 1
        if chance is None:
            return -self.length * log10((self._hits + 1) / (self._trials + self._tosses + 1))
        self._sum -= log10(min(max(chance, 0.01), 1.0))
        return self._sum

    def restart(self) -> None:
        """Begin a row of another kind: what was the same until now came before it."""
        self._hits += self.length
        self._trials += self.length
        self.length, self._sum = 0, 0.0


class Gone:
    """Says that what has always come does not come any more.

    It must have come ``after`` times in a row from the first on. Nothing that may be missing by chance is judged, so
    that there are no false alarms; it is said at once.
    """

    __slots__ = ("_after", "_came", "since")

    def __init__(self, after: int = 10) -> None:
        self._after, self._came = after, 0
        self.since: int | None = None
        """The step since which it is gone; None if it is there, or never counted on."""

    def add(self, there: bool, step: int) -> bool:
        """Add an observation; return True if it is gone."""
        if there:
            self._came += self._came >= 0
            self.since = None
        elif self._came < self._after:
            self._came = -1  # it does not always come
        elif self.since is None:
            self.since = step
        return self.since is not None


class Apart:
    """Says by what factor a number has grown while another one has jumped: two that should not move together so fast.

    The factor is the median of the last 5 values over that of 30 values before the newest 20. The other number has
    jumped if its rise in 20 values exceeds that of the 20 before by more than 1.5 standard deviations: by chance in
    less than 1 of 1,000 steps of normal noise, and hardly ever together with a factor of 5.
    """

    @staticmethod
    def factor(moving: Past, other: Past) -> float:
        """Return the factor; 0 if the other number has not jumped. Both need 70 values."""
        late, middle, early = other.median(10), other.median(10, 20), other.median(10, 40)
        jump = late - middle - max(0.0, middle - early)
        if jump <= 0.0 or jump <= 1.5 * deviation(other.last(50, 20)):
            return 0.0
        return median(moving.values[-5:]) / max(median(moving.last(30, 20)), 1e-9)


@dataclass
class Each(Generic[T]):
    """What is known of each member of a labelled series: one ``make()`` a name, of `MOST_MEMBERS` names at most."""

    make: Callable[[], T]
    _members: dict[str, T] = field(default_factory=dict)

    def of(self, names: Sequence[str] | Mapping[str, object]) -> Iterator[tuple[str, T]]:
        """Yield each of ``names`` that is followed, with what is known of it."""
        for name in names:
            known = self._members.get(name)
            if known is None:
                if len(self._members) >= MOST_MEMBERS:
                    continue
                known = self._members[name] = self.make()
            yield name, known

    def get(self, name: str) -> T | None:
        """Return what is known of a member; None of one that was never seen."""
        return self._members.get(name)

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield all members."""
        return iter(self._members.items())

    def forget(self, name: str) -> None:
        """Forget a member."""
        self._members.pop(name, None)
