"""Collects what taps see between two steps into one step update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlexporter.model.metric import Metric, Series
from rlexporter.model.step import StepUpdate
from rlexporter.run.phase_timer import PhaseTimer
from rlexporter.store.keys import clip
from rlexporter.tensors.tally import Tally


class PendingStep:
    """The observations since the last step. ``named``: the catalogue by Prometheus name."""

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
