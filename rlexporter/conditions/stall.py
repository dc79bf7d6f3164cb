"""Says after how long without a step a run counts as hung: a multiple of its own pace, by the current phase."""

from __future__ import annotations

from collections import deque
from statistics import median

STALLED = ("run_stalled", "")
"""The key of the minimum among the thresholds of a run."""
MINIMUM = 600.0
"""The minimum in seconds. Source: prime-rl calls 600 s without a step stuck, miles 30 minutes or 6 medians."""
TIMES = 10.0
FIRST = 3.0
"""The limit before the first step, in multiples of the minimum: models are loaded and compiled then."""
UNMEASURED = 6.0
"""The limit for an evaluation or a checkpoint that was never measured, in multiples of the minimum."""
ASIDE = frozenset(("eval", "save"))
"""The phases that are not part of a step."""


class Patience:
    """Learns the pace of one run. ``minimum``: seconds that are always allowed."""

    def __init__(self, minimum: float = MINIMUM) -> None:
        self._minimum = minimum
        self._pace = FIRST * minimum
        self._steps: deque[float] = deque(maxlen=50)
        self._aside: dict[str, deque[float]] = {name: deque(maxlen=10) for name in ASIDE}

    def step(self, seconds: float) -> None:
        """Note that a step took ``seconds``."""
        self._steps.append(seconds)
        slow = TIMES * max(self._steps) > self._minimum  # cheaper than a median, and mostly all
        self._pace = max(self._minimum, TIMES * median(self._steps)) if slow else self._minimum

    def phase(self, name: str, seconds: float) -> None:
        """Note that the phase ``name`` took ``seconds``."""
        if name in self._aside:
            self._aside[name].append(seconds)

    def limit(self, phase: str = "") -> float:
        """Return the seconds without a step after which the run counts as hung while ``phase`` is under way."""
        if not self._steps or phase not in self._aside:
            return self._pace
        known = self._aside[phase]
        return max(self._pace, TIMES * median(known) if known else UNMEASURED * self._minimum)
