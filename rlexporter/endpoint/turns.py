"""Turns of the pages that are open: how soon each may ask again. Pure: the times are arguments."""

from __future__ import annotations

_APART_SECONDS = 0.25
"""The time between two turns: an answer takes a few milliseconds of the process that trains."""
_SOONEST_SECONDS = 2
_LATEST_SECONDS = 30


class Turns:
    """Gives each page that asks a later turn of its own.

    Up to eight pages ask every two seconds. More of them share the same turns: 64 ask every sixteen.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def seconds(self, now: float) -> int:
        """Return the whole seconds after which the page that asks should ask again; ``now``: of the monotonic clock."""
        self._last = max(self._last + _APART_SECONDS, now + _SOONEST_SECONDS)
        self._last = min(self._last, now + _LATEST_SECONDS)
        return round(self._last - now)
