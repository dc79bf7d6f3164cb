"""Times the phases of a step. Phases may be nested; the time of an inner one is not part of the outer one."""

from __future__ import annotations

import time
from collections.abc import Callable


class PhaseTimer:
    """A stack of open phases, and the seconds spent in each. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0
        self._spent: dict[str, float] = {}

    @property
    def current(self) -> str:
        """Return the innermost open phase; empty between phases."""
        return self._open[-1] if self._open else ""

    def enter(self, name: str) -> None:
        """Begin the phase ``name``."""
        self._account()
        self._open.append(name)

    def leave(self) -> None:
        """End the innermost phase."""
        self._account()
        self._open.pop()

    def take(self) -> dict[str, float]:
        """Return the seconds spent in each phase since the last call."""
        self._account()
        taken, self._spent = self._spent, {}
        return taken

    def _account(self) -> None:
        now = self._clock()
        if self._open:
            self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now
