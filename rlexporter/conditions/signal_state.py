"""A signal in one run with its limits: the numbers in force, what was beyond them lately, and the level before that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from statistics import median

from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.past import Past, measure, refresh, spread
from rlexporter.conditions.view import Derive, Memory, View, value_range
from rlexporter.model.condition import Condition, Limit, Read, Signal, Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series

_SIGNAL = NAMED["rl_signal"]

_KEPT = 50
_ENOUGH = 5
_BACK = 10
"""The observations whose median must be back."""
_SPREADS = 3.0
_SHARE = 0.25
"""The share of the way from the old level to the limit that still counts as the old level."""
_LITTLE = 0.02
"""The share of that way that a number without any noise goes by itself."""

Getter = Callable[[View, Memory], "float | None"] | str
"""A function, or the name of a number that is used as it is."""

Factor = float | Mapping[str, float]
"""The number of a limit: one for all variants of the signal, or one for each."""

Measures = dict[Callable[[Past], float | None], tuple[float | None, int]]
"""Measures of a past, each with the number of observations there were."""


class Level:
    """The level of one signal before an incident. ``below``: True if what went wrong was a fall."""

    __slots__ = ("_below", "_bound", "_recent", "_usual")

    def __init__(self, past: Past, lag: int, limit: float, below: bool) -> None:
        """Measure ``past`` without its newest ``lag``; one that is too short had no level but ``limit`` itself."""
        self._below = below
        self._recent: deque[float] = deque(maxlen=_BACK)
        self._bound = self._usual = limit
        values = past.last(_KEPT, lag)
        if len(values) >= _ENOUGH:
            middle, width = spread(values)
            self._bound = self._reached(middle, max(_SPREADS * width, _SHARE * abs(limit - middle)), limit)
            self._usual = self._reached(middle, max(_SPREADS * width, _LITTLE * abs(limit - middle)), limit)

    def _reached(self, middle: float, reach: float, limit: float) -> float:
        return max(limit, middle - reach) if self._below else min(limit, middle + reach)

    def away(self, past: Past) -> int:
        """Return how many of the newest observations of ``past`` came after the last two that were usual."""
        usual = [value >= self._usual if self._below else value <= self._usual for value in past.values]
        for place in range(len(usual) - 1, 0, -1):
            if usual[place] and usual[place - 1]:
                return max(1, len(usual) - 1 - place)
        return len(usual)

    def left(self) -> None:
        """Forget what was seen of an incident: the number counts from now on."""
        self._recent.clear()

    def is_back(self, value: float) -> bool:
        """Add the newest value, and return True once the level is reached again."""
        self._recent.append(value)
        if len(self._recent) < _BACK:
            return False
        now = median(self._recent)
        return now >= self._bound if self._below else now <= self._bound


class LimitState:
    """A limit of a condition, and which of the last n observations were beyond it."""

    __slots__ = (
        *("active", "below", "beyond", "condition", "constant", "eased", "enough", "every", "factor", "floor"),
        *(
            "learning",
            "level",
            "limit",
            "measure",
            "min_observations",
            "number",
            "settles",
            "since",
            "threshold",
            "variant",
        ),
        "window",
    )

    def __init__(self, condition: Condition, limit: Limit, factor: Factor) -> None:
        self.condition = condition
        self.limit = limit
        self.factor = factor
        self.below = condition.below
        self.learning = limit.learning if factor == limit.value else ""
        """What may raise the limit; nothing does that to a number that the user has set."""
        self.min_observations = condition.min_observations
        self.enough, size = limit.k_of_n
        self.window: deque[bool] = deque(maxlen=size)
        self.beyond = 0
        self.active = self.eased = False
        self.level: Level | None = None
        """The level of the run before the incident that is not over; None if none is, or it never will be."""
        self.since = 0
        self.measure = measure(condition.baseline)
        self.every, self.settles = refresh(condition.baseline), condition.baseline.settles
        self.threshold: float | None = None
        self.constant: float | None = None
        """The limit, once it will not change any more."""
        self.variant: str | None = None

    def choose(self, variant: str) -> None:
        """Take the numbers for this ``variant`` of the signal; None if it has none."""
        self.variant = variant
        self.number = _pick(self.factor, variant)
        self.floor = _pick(self.condition.floor, variant) or 0.0

    def find(self, variant: str, past: Past, measures: Measures) -> tuple[float | None, float]:
        """Return the limit in force, and the number of observations with which it may be another one.

        It is None if the variant has none, or the past is too short. ``measures``: those that were taken of this past
        lately, and when.
        """
        if variant != self.variant:
            self.choose(variant)
        threshold, measure, stays = self.number, self.measure, inf
        if threshold is None:
            return None, inf
        if measure is not None:
            level, at = measures.get(measure, (None, 0))
            if level is None or past.count - at >= self.every:
                level, at = measure(past), past.count
                measures[measure] = (level, at)
            if level is None:
                return None, past.count + 1
            stays = at + self.every
            threshold *= level
            if not self.below and threshold < self.floor:
                threshold = self.floor
        if self.settles:
            self.constant = threshold
            stays = inf
        return threshold, stays

    def begin_anew(self) -> None:
        """Forget what was observed and measured at another source."""
        self.window.clear()
        self.beyond = 0
        self.active = self.eased = False
        self.level = None
        self.threshold = self.constant = None

    def is_still(self, beyond: bool) -> bool:
        """Return True if one more observation that is, or is not, ``beyond`` the limit changes nothing."""
        if beyond:
            return self.active and self.beyond == self.window.maxlen and not self.learning
        return not self.beyond and not self.eased

    def observe(self, beyond: bool) -> bool:
        """Add one observation, and return True if the condition holds."""
        window = self.window
        if len(window) == window.maxlen:
            self.beyond -= window[0]
        window.append(beyond)
        self.beyond += beyond
        return self.beyond >= self.enough


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value


class SignalState:
    """A signal of a run: its sources, its past, and the limits on it."""

    __slots__ = (
        *("gauge", "get", "getters", "high", "limits", "low", "measures", "name", "origin", "origin_places", "past"),
        *("places", "rests", "series", "sources", "tried", "unit", "until", "variant", "began", "window"),
    )

    def __init__(
        self, signal: Signal, algorithm: str, derive: Mapping[str, Derive], origin: SignalState | None
    ) -> None:
        self.name, self.unit, self.rests, self.window = signal.name, signal.unit, signal.rests, signal.window
        self.began = 0
        """The step of the first observation of its past."""
        self.gauge = Series(_SIGNAL, (signal.name,))
        self.origin = origin
        """The signal that this one is derived from."""
        self.sources = [source for source in signal.sources if not source.algorithms or algorithm in source.algorithms]
        self.getters = [getter(source, derive) for source in self.sources]
        self.get: Getter | None = None
        """The getter that it was read with last; None before it was read."""
        self.tried = self.getters
        """The getters of the source that was read last and of all better ones."""
        self.places = self.origin_places = 0
        """The number of sources that this signal, and its origin, had so far."""
        self.series = self.variant = ""
        self.past = Past()
        self.limits: list[LimitState] = []
        self.measures: Measures = {}
        self.low, self.high = inf, -inf
        """The range in which a value changes nothing, as it is beyond the same limits as all lately."""
        self.until: float = 0
        """The number of observations with which one of the limits may change."""

    def tell_again(self) -> None:
        """Let the limits begin again, if they are still crossed: what is wrong now is worse than what was told."""
        self.until = 0
        for limit in self.limits:
            limit.window.clear()
            limit.beyond, limit.active = 0, False


def awake(states: Iterable[SignalState], view: View) -> list[SignalState]:
    """Return those of ``states`` that may have a value in a step of this shape. They are in the order of evaluation."""
    there = {*view.numbers, *view.functions, *(series.metric.series for series in view.seen)}
    asked = []
    for state in states:
        reads = (source.reads if source.derived else (source.series,) for source in state.sources)
        if any(not names or not there.isdisjoint(names) for names in reads):
            asked.append(state)
            there.add(state.name)
    return asked


def getter(source: Source, derive: Mapping[str, Derive]) -> Getter:
    """Return the getter of ``source``; a function returns None or NaN if the step does not have it."""
    series = source.series
    if source.read is Read.DERIVED:
        return derive[series]
    if source.read is Read.VALUE:
        return series
    of = _of(source)

    def read(view: View, memory: Memory) -> float | None:
        counted = view.counted.get(series)
        return of(counted) if counted is not None else None

    return read


def _of(source: Source) -> Callable[[Histogram], float | None]:
    if source.read is Read.MEAN:
        return lambda counted: counted.finite_mean
    if source.read is Read.MINUS_MEAN:
        return lambda counted: -counted.finite_mean
    if source.read is Read.SPREAD:
        return value_range
    low, high = source.outside

    def share(counted: Histogram) -> float | None:
        count, pairs = counted.count, zip(counted.bounds, counted.counts, strict=False)
        return 1.0 - sum([number for bound, number in pairs if low < bound <= high]) / count if count else None

    return share
