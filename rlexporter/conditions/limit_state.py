"""A limit of a condition in one run: its number in force, what was beyond it lately, and the level before that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from rlexporter.conditions.baselines import Measure, measure, measured, refresh
from rlexporter.conditions.level import Level
from rlexporter.conditions.past import Past
from rlexporter.model.condition import Condition, Limit

Factor = float | Mapping[str, float]
"""The number of a limit: one for all variants of the signal, or one for each."""

Measures = dict[Callable[[Past], Measure | None], tuple[Measure | None, int]]
"""Measures of a past, each with the number of observations there were."""


class LimitState:
    """A limit of a condition, and which of the last n observations were beyond it."""

    __slots__ = (
        *("active", "below", "beyond", "condition", "constant", "enough", "every", "factor", "floor"),
        *("eased", "level", "limit", "measure", "number", "threshold", "min_observations", "since", "variant"),
        "window",
    )

    def __init__(self, condition: Condition, limit: Limit, factor: Factor) -> None:
        self.condition = condition
        self.limit = limit
        self.factor = factor
        self.below = condition.below
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
            found, at = measures.get(measure, (None, 0))
            if found is None or past.count - at >= self.every:
                found = measure(past)
                measures[measure] = (found, past.count)
            if found is None:
                return None
            threshold = measured(threshold, found)
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
