"""Says when a number is back at the level that a run had before an incident."""

from __future__ import annotations

from collections import deque
from statistics import median

from rlexporter.conditions.past import Past, spread

_KEPT = 50
_ENOUGH = 5
_BACK = 10
"""The observations whose median must be back."""
_SPREADS = 3.0
_SHARE = 0.25
"""The share of the way from the old level to the limit that still counts as the old level."""


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
