"""The past of a signal, bounded and of finite numbers only; what limits measure in it, and what it is evidence of."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log10, sqrt
from operator import sub
from statistics import median

from rlexporter.catalog.conditions import REWARD_DIP
from rlexporter.model.condition import Baseline

KEPT = 256
"""The number of observations that are remembered at least; the longest baseline needs 70."""
MOST = 2 * KEPT
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
    """Return the 90th percentile, by nearest rank from below."""
    # Half of the gradients of a healthy run can be 0, where groups have no spread of reward: they say nothing of scale.
    own = [*filter(None, past.last(50, 5))]
    return sorted(own)[int(0.9 * (len(own) - 1))] if len(own) >= WARM else None


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


# Evidence from rewards: how improbable what is seen is, and what they were like so far

UNIT = "orders of magnitude"
SMALLEST = 0.01
"""The smallest probability that a single observation can have."""

ENOUGH = 50
"""The number of values from which on extremes say something."""
FAR = 10.0
"""The distance beyond all values before, in multiples of their range, from which on a value is an outlier."""
_SCALE = 1.0
"""The smallest range: where a reward that was 0.0 to 0.1 is 1.0 for the first time, the task was solved once."""
_SAME = 1e-6
"""The relative difference below which two means of equal rewards are the same."""
_BLIND = 4.0
"""The orders of magnitude by which a row must be improbable."""
_LEAST_NOISE = 0.05
"""The smallest noise of a cumulative sum: precision and kernels of a sampler make so many nats a token."""
_USUAL = 3
"""The number of observations in a row with outliers that make them the usual."""
_NEAR = 0.2
"""The share of a fall within which a level is still near the best one."""
_LEVELS = 100
"""The levels that are remembered."""
_DIP = 100
"""The steps after which a fall has lasted."""
_RECENT = 20


class Streak:
    """Counts how often in a row an event happens, and how often it happened before that.

    ``tosses``: the number of independent parts of an observation that must all agree for the event.
    """

    __slots__ = ("_hits", "_tosses", "_trials", "length")

    def __init__(self, tosses: int = 1) -> None:
        self.length = 0
        self._tosses = tosses
        self._hits = 0
        self._trials = 0

    def add(self, happened: bool) -> float:
        """Add an observation; return how improbable the current streak is, given all observations before it."""
        if happened:
            self.length += 1
        else:
            self._trials += self.length + 1
            self._hits += self.length
            self.length = 0
            return 0.0
        # Laplace's rule of succession, where without a past every probability of a single toss is as likely.
        return -self.length * log10((self._hits + 1) / (self._trials + self._tosses + 1))


class Doubt:
    """Adds up evidence from observations in a row that each have a probability of their own."""

    __slots__ = ("_sum", "length")

    def __init__(self) -> None:
        self._sum = 0.0
        self.length = 0

    def add(self, happened: bool, probability: float) -> float:
        """Add an observation whose event has this ``probability`` by chance; return how improbable the row is."""
        self.length = self.length + 1 if happened else 0
        self._sum = self._sum - log10(min(max(probability, SMALLEST), 1.0)) if happened else 0.0
        return self._sum


class CumulativeSum:
    """Adds up what is above an allowance, and forgets it where it falls to 0: small lasting offsets are seen soon."""

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def add(self, value: float, before: Sequence[float]) -> float:
        """Add a ``value`` that should be 0 but for noise; return its offset once that is sure, else 0.

        ``before``: values that say how large the noise is. One standard deviation of it is allowed, and six prove it.
        """
        noise = max(_LEAST_NOISE, deviation(before)) if len(before) >= WARM else 0.0
        if not noise:
            return 0.0
        self._sum = min(self._sum + value - noise, 12 * noise)  # bounded, so that it falls again
        self._count += 1
        if self._sum <= 0.0:
            self._sum, self._count = 0.0, 0
        return noise + self._sum / self._count if self._sum > 6 * noise else 0.0


class Envelope:
    """The range of the values of one reward so far. Outliers stay out of it until they are usual."""

    __slots__ = ("count", "far", "high", "low")

    def __init__(self) -> None:
        self.low = float("inf")
        self.high = float("-inf")
        self.count = 0
        self.far = 0

    def beyond(self, low: float, high: float, count: int) -> float | None:
        """Take ``count`` values from ``low`` to ``high``; return how far they are beyond those before, in their range.

        The range counts as 1 at least. None while too few values came before.
        """
        distance = None
        if self.count >= ENOUGH:
            distance = max(high - self.high, self.low - low, 0.0) / max(self.high - self.low, _SCALE)
        self.far = self.far + 1 if distance is not None and distance > FAR else 0
        if self.far in (0, _USUAL):
            self.low, self.high, self.far = min(self.low, low), max(self.high, high), 0
        self.count += count
        return distance


class Varied:
    """The observations in which one reward function told completions apart."""

    __slots__ = ("constant", "count", "highest", "level", "lowest", "means", "since")

    def __init__(self) -> None:
        self.count = 0
        self.constant = 0
        """The number of observations since in which it gave nothing but one and the same reward, ``level``."""
        self.level: float | None = None
        self.since = 0
        """The step of the first of them."""
        self.lowest: deque[float] = deque(maxlen=_RECENT)
        self.highest: deque[float] = deque(maxlen=_RECENT)
        self.means: deque[float] = deque(maxlen=_RECENT)

    def add(self, mean: float, low: float | None, high: float | None) -> None:
        """Note an observation: the mean, and the lowest and the highest reward if they are known."""
        self.count += 1
        self.constant, self.level = 0, None
        self.means.append(mean)
        if low is not None and high is not None:
            self.lowest.append(low)
            self.highest.append(high)

    def add_flat(self, value: float, step: int) -> None:
        """Note an observation of ``step`` in which all rewards were ``value``."""
        same = self.level is not None and abs(value - self.level) <= _SAME * max(1.0, abs(value))
        self.constant = self.constant + 1 if same else 1
        if not same:
            self.since = step
        self.level = value

    def chance(self, observations: int) -> float:
        """Return how likely the constant ones of all ``observations`` are chance, at the rate before them.

        1 if it has never told completions apart.
        """
        return float((1.0 - self.count / (observations - self.constant + 1)) ** self.constant) if self.count else 1.0

    def unearned(self, value: float) -> bool:
        """Return True if rewards that are all ``value`` are no success: below its best of late, or reached in one jump.

        Below is a tenth of the usual range; a jump is half of it, since learning takes steps. Where only means are
        known, as in log lines, the best one counts, and no jump is seen.
        """
        if not self.highest:
            low, high = min(self.means), max(self.means)
            return value < high - 0.1 * (high - low)
        low, high = median(self.lowest), median(self.highest)
        return value < high - 0.1 * (high - low) or value - max(list(self.means)[-3:]) > 0.5 * (high - low)


class Levels:
    """The levels that the reward of a run has had: medians over 15 steps, and of at least 5 observations."""

    __slots__ = ("_gaps", "_newest", "_path", "_since", "_step", "best", "first", "lowest", "since_best")

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = float("-inf")
        self.lowest = float("inf")
        self._path = 0.0
        """The sum of all differences between a reward and the one before it."""
        self._gaps: deque[int] = deque(maxlen=20)
        """The steps from each reward to the next."""
        self._step: int | None = None
        self._since: int | None = None
        """The step since which the reward has been clearly below its best."""
        self._newest: deque[float] = deque(maxlen=_LEVELS)
        self.since_best = 0
        """The rewards that the level of a fall is of, and those since it was last near its best."""

    def fall(self, reward: Past, step: int, span: int) -> float | None:
        """Take the newest value of ``reward``; return how far its level is below its best; None before there are two.

        That is in spreads from step to step, and 0 if it is less than 0.4 of the way from the lowest level to the best.
        A dip is no more than `REWARD_DIP`: it has cost less than 0.7 of what was gained, and may come back within 100
        steps. ``span``: the steps between two rewards, where there is one only.
        """
        size = max(5, ceil(15 / max(1, self._apart(step, span))))
        if reward.count > 1:
            self._path += abs(reward.newest - reward.values[-2])
        if reward.count < size:
            return None
        level = median(reward.values[-size:])
        if self.first is None:
            self.first = level
        self.best, self.lowest = max(self.best, level), min(self.lowest, level)
        if reward.count < 2 * size:
            return None
        fall = self.best - level
        self._newest.append(level)
        if fall <= 0.4 * (self.best - self.lowest):
            self._since = None
            return 0.0
        near = (place for place, each in enumerate(reversed(self._newest)) if self.best - each <= _NEAR * fall)
        self.since_best = size + next(near, len(self._newest))
        return self._weighed(fall, self._noise(reward), step)

    def _apart(self, step: int, span: int) -> float:
        """Return the usual number of steps from one reward to the next."""
        if self._step is not None:
            self._gaps.append(step - self._step)
        self._step = step
        gaps = self._gaps
        return span if not gaps else gaps[-1] if gaps.count(gaps[-1]) == len(gaps) else median(gaps)

    def _noise(self, reward: Past) -> float:
        # Rewards that stand still have no noise any more: what they had over the whole run counts too.
        return max(reward.roughness(), self._path / reward.count, 1e-9) / NOISE

    def _weighed(self, fall: float, noise: float, step: int) -> float:
        far = fall / noise
        self._since = None if far <= REWARD_DIP else step if self._since is None else self._since
        gained = self.best - (self.first or 0.0)
        lasts = self._since is not None and step - self._since >= _DIP
        # Whatever has not clearly gained can only lose what it had.
        return far if lasts or gained <= noise or fall >= 0.7 * gained else min(far, REWARD_DIP)


class Blindness:
    """Follows in how many groups one reward function gives all completions the same."""

    __slots__ = ("_all", "_shares", "since")

    def __init__(self) -> None:
        self._all = Streak()
        self._shares: deque[float] = deque(maxlen=10)
        """The shares of groups before the current row of observations without any other group."""
        self.since = 0
        """The step since which it tells no completions of a prompt apart any more; 0 if it does."""

    def add(self, share: float, step: int) -> bool:
        """Add the ``share`` of groups without a spread in ``step``; return True if no chance explains the row.

        Before the row at most half of the groups were like that: a policy that becomes certain gets there slowly.
        """
        improbable = self._all.add(share == 1.0)
        if share < 1.0:
            self._shares.append(share)
            self.since = 0
            return False
        self.since = self.since or step
        shares = self._shares
        return len(shares) == shares.maxlen and sum(shares) <= 0.5 * len(shares) and improbable >= _BLIND
