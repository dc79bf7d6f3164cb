"""Collects what taps see between two steps into one step update, with the time of each phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from rlexporter.model.step import StepUpdate
from rlexporter.tensors.tally import Tally


class PendingStep:
    """The observations since the last step."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.phases = PhaseTimer()
        self._undefined: dict[str, int] = {}
        self._values: dict[str, list[float]] = {}
        self.overhead = 0.0
        """The seconds that observing has cost the training thread since they were taken last."""

    def undefined(self, name: str, count: int) -> None:
        """Add ``count`` values of the metric ``name`` that were not given."""
        if count:
            self._undefined[name] = self._undefined.get(name, 0) + count

    def values(self, numbers: Mapping[str, list[float]]) -> None:
        """Add ``numbers`` that a trainer will average, by log key."""
        for key, own in numbers.items():
            self._values.setdefault(key, []).extend(own)

    def take(self, update: StepUpdate) -> StepUpdate:
        """Return ``update`` with everything since the last one."""
        values, self._values = self._values, {}
        return replace(
            update,
            seen=self.tally.take(update.step),
            undefined=self._take_undefined(),
            values={key: tuple(numbers) for key, numbers in values.items()},
            phases=self.phases.take(),
            overhead=self.take_overhead(),
        )

    def part(self, step: int) -> StepUpdate:
        """Return what was counted since the last step as a part of ``step``. Times and numbers to average stay."""
        return StepUpdate(step=step, seen=self.tally.take(step), undefined=self._take_undefined())

    def _take_undefined(self) -> dict[str, int]:
        undefined, self._undefined = self._undefined, {}
        return undefined

    def take_overhead(self) -> float:
        """Return the seconds that observing has cost since the last call."""
        overhead, self.overhead = self.overhead, 0.0
        return overhead


class PhaseTimer:
    """A stack of open phases, and the seconds spent in each: those of an inner one are not part of the outer one.

    ``clock``: seconds.
    """

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
        self._account()
        self._open.append(name)

    def leave(self) -> None:
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
