"""A limit of a condition in one run: its number in force, what was beyond it lately, and the level before that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from statistics import median

from rlexporter.conditions.past import Measure, Past, measure, measured, refresh, spread
from rlexporter.model.condition import Condition, Limit

_KEPT = 50
_ENOUGH = 5
_BACK = 10
"""The observations whose median must be back."""
_SPREADS = 3.0
_SHARE = 0.25
"""The share of the way from the old level to the limit that still counts as the old level."""

Factor = float | Mapping[str, float]
"""The number of a limit: one for all variants of the signal, or one for each."""

Measures = dict[Callable[[Past], Measure | None], tuple[Measure | None, int]]
"""Measures of a past, each with the number of observations there were."""


class Level:
    """The level of one signal before an incident. ``below``: True if what went wrong was a fall."""

    __slots__ = ("_below", "_bound", "_recent")

    def __init__(self, past: Past, lag: int, limit: float, below: bool) -> None:
        """Measure ``past`` without its newest ``lag``; one that is too short had no level but ``limit`` itself."""
        self._below = below
        self._recent: deque[float] = deque(maxlen=_BACK)
        self._bound = limit
        values = past.last(_KEPT, lag)
        if len(values) >= _ENOUGH:
            middle, width = spread(values)
            reach = max(_SPREADS * width, _SHARE * abs(limit - middle))
            self._bound = max(limit, middle - reach) if below else min(limit, middle + reach)

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
        *("learning", "level", "limit", "measure", "min_observations", "number", "since", "threshold", "variant"),
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
        self.every = refresh(condition.baseline)
        self.threshold: float | None = None
        self.constant: float | None = None
        """The limit, once it will not change any more."""
        self.variant: str | None = None

    def choose(self, variant: str) -> None:
        """Take the numbers for this ``variant`` of the signal; None if it has none."""
        self.variant = variant
        self.number = _pick(self.factor, variant)
        self.floor = _pick(self.condition.floor, variant) or 0.0

    def find(self, variant: str, past: Past, measures: Measures) -> float | None:
        """Return the limit in force; None if the variant has none, or the past is too short.

        ``measures``: those that were taken of this past lately, and when.
        """
        if variant != self.variant:
            self.choose(variant)
        threshold, measure = self.number, self.measure
        if threshold is None:
            return None
        if measure is not None:
            level, at = measures.get(measure, (None, 0))
            if level is None or past.count - at >= self.every:
                level = measure(past)
                measures[measure] = (level, past.count)
            if level is None:
                return None
            threshold = measured(threshold, level)
            if not self.below and threshold < self.floor:
                threshold = self.floor
        if self.condition.baseline.settles:
            self.constant = threshold
        return threshold

    def begin_anew(self) -> None:
        """Forget what was observed and measured at another source."""
        self.window.clear()
        self.beyond = 0
        self.active = self.eased = False
        self.level = None
        self.threshold = self.constant = None

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
