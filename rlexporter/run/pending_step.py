"""Collects what taps see between two steps into one step update, with the time of each phase."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rlexporter.model.metric import Metric, Series
from rlexporter.model.step import StepUpdate
from rlexporter.store.keys import clip
from rlexporter.tensors.tally import Tally


class PendingStep:
    """The observations since the last step. ``named``: the catalog by Prometheus name."""

    def __init__(self, named: Mapping[str, Metric]) -> None:
        self.tally = Tally()
        self.phases = PhaseTimer()
        self._named = named
        self._undefined: Counter[str] = Counter()
        self._values: dict[str, list[float]] = {}
        self._overhead = 0.0

    def cost(self, seconds: float) -> None:
        """Add ``seconds`` that observing has cost the training thread."""
        self._overhead += seconds

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> Metric:
        """Count raw values of the metric ``name``, and return it. Raises LookupError for an unknown name."""
        metric = self._named.get(name)
        if metric is None or len(metric.labels) != len(labels):
            raise LookupError(f"no metric is called {name!r} and has {len(labels)} labels")
        self.tally.add(Series(metric, tuple(map(clip, labels))), values, mask)
        return metric

    def undefined(self, name: str, count: int) -> None:
        """Add ``count`` values of the metric ``name`` that were not given."""
        self._undefined[name] += count

    def values(self, key: str, numbers: list[float]) -> None:
        """Add ``numbers`` that a trainer will average under the log key ``key``."""
        self._values.setdefault(key, []).extend(numbers)

    def take(self, update: StepUpdate) -> StepUpdate:
        """Return ``update`` with everything since the last one."""
        values, self._values = self._values, {}
        part = self.part(update.step)
        return replace(
            update,
            seen=part.seen,
            undefined=part.undefined,
            values={key: tuple(numbers) for key, numbers in values.items()},
            phases=self.phases.take(),
            overhead=self.take_overhead(),
        )

    def part(self, step: int) -> StepUpdate:
        """Return what was counted since the last step as a part of ``step``. Times and numbers to average stay."""
        undefined, self._undefined = self._undefined, Counter()
        return StepUpdate(step=step, seen=self.tally.take(step), undefined=dict(undefined))

    def take_overhead(self) -> float:
        """Return the seconds that observing has cost since the last call."""
        overhead, self._overhead = self._overhead, 0.0
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
