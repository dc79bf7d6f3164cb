"""Judges a run step by step: reads the signals, measures the limits, and says which conditions begin and end.

Pure but for its own bounded memory: nothing here knows the store, the clock or a trainer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from rlexporter.condition import Condition, Limit, Read, Signal, Source, Yardstick
from rlexporter.conditions.derived import Derive
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.view import View, finite_mean
from rlexporter.conditions.yardsticks import measured

Factor = float | Mapping[str, float]
"""The number of a limit: one, or one by variant of the signal."""
Thresholds = Mapping[tuple[str, str], Factor | None]
"""Numbers of limits that differ from the declared ones, by condition and severity; None: off."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one limit of a condition after a step that was judged by it."""

    condition: Condition
    limit: Limit
    threshold: float
    """In force, in the unit of the signal."""
    active: bool
    began: bool
    value: float
    series: str
    """Where the signal was read."""


class _Held:
    """One limit of one condition: the last n observations, beyond it or not."""

    __slots__ = ("active", "factor", "limit", "window")

    def __init__(self, limit: Limit, factor: Factor) -> None:
        self.limit = limit
        self.factor = factor
        self.window: deque[bool] = deque(maxlen=limit.hold[1])
        self.active = False


class Judge:
    """Judges one run. ``derive``: the functions of derived signals; ``thresholds``: numbers of limits that differ from
    the declared ones, None for a limit that is off.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        signals: Sequence[Signal],
        derive: Mapping[str, Derive],
        thresholds: Thresholds | None = None,
    ) -> None:
        self._conditions = conditions
        self._signals = signals
        self._of = {signal.name: signal.of for signal in signals}
        self._derive = derive
        self._thresholds = thresholds or {}
        self.begin("")

    def begin(self, algorithm: str, *, sequence_level: bool = False) -> None:
        """A run of this algorithm begins. ``sequence_level``: its ratios are of sequences."""
        self._sequence_level = sequence_level
        self._sources = [
            (signal.name, tuple(each for each in signal.sources if not each.algorithms or algorithm in each.algorithms))
            for signal in self._signals
        ]
        self.conditions = tuple(each for each in self._conditions if each.applies(algorithm))
        self._past = {name: Past() for name, _ in self._sources}
        self._read: dict[str, tuple[int, str, str]] = {}
        self._memory = Memory(self._past, self._read)
        self._held = {condition.name: self._limits(condition) for condition in self.conditions}

    def _limits(self, condition: Condition) -> list[_Held]:
        held = []
        for limit in condition.limits:
            factor = self._thresholds.get((condition.name, limit.severity.value), limit.value)
            if factor is not None:
                held.append(_Held(limit, factor))
        return held

    def step(self, view: View) -> list[Verdict]:
        """Judge one step, or a line that belongs to one."""
        self._memory.fresh = fresh = set[str]()
        for name, sources in self._sources:
            last = self._read[name][0] if name in self._read else len(sources)
            self._memory.where = ""
            for rank, source in enumerate(sources[: last + 1]):
                value = self._value(name, source, view)
                if value is not None and isfinite(value):
                    self._note(name, rank, source, value)
                    fresh.add(name)
                    break
        verdicts: list[Verdict] = []
        for condition in self.conditions:
            if condition.signal in fresh:
                verdicts.extend(self._judged(condition))
        return verdicts

    def past(self, signal: str) -> Past:
        """What a signal was so far."""
        return self._past[signal]

    def _value(self, name: str, source: Source, view: View) -> float | None:
        if source.read is Read.DERIVED:
            return self._derive[source.series or name](view, self._memory)
        if source.read is Read.VALUE:
            return view.numbers.get(source.series)
        counted = view.counted.get(source.series)
        if counted is None or not counted.count:
            return None
        if source.read is Read.SPREAD:
            return counted.maximum - counted.minimum
        if source.read is Read.SHARE:
            low, high = source.outside
            pairs = zip(counted.bounds, counted.counts, strict=False)
            inside = sum(number for bound, number in pairs if low < bound <= high)
            return 1.0 - inside / counted.count
        mean = finite_mean(counted)
        return -mean if source.read is Read.MINUS_MEAN else mean

    def _note(self, name: str, rank: int, source: Source, value: float) -> None:
        """A signal that is read at a better place from now on has no past there; it never goes back to a worse one."""
        if name in self._read and self._read[name][0] != rank:
            self._past[name] = Past()
        of = self._of[name]
        if of in self._read:
            self._read[name] = (rank, *self._read[of][1:])
        else:
            variant = "sequence" if source.variant == "token" and self._sequence_level else source.variant
            series = self._memory.where if source.read is Read.DERIVED else source.series
            self._read[name] = (rank, series, variant)
        self._past[name].add(value)

    def _judged(self, condition: Condition) -> list[Verdict]:
        past = self._past[condition.signal]
        if past.count <= condition.warm:
            return []
        _, series, variant = self._read[condition.signal]
        value = past.newest
        verdicts = []
        for held in self._held[condition.name]:
            threshold = self._threshold(condition, held.factor, variant, past)
            if threshold is None:
                continue
            held.window.append(value < threshold if condition.below else value > threshold)
            was, held.active = held.active, sum(held.window) >= held.limit.hold[0]
            began = held.active and not was
            verdicts.append(Verdict(condition, held.limit, threshold, held.active, began, value, series))
        return verdicts

    def _threshold(self, condition: Condition, factor: Factor, variant: str, past: Past) -> float | None:
        """The limit in force; None where this kind of number has none, or there is no past yet."""
        number = _pick(factor, variant)
        if number is None:
            return None
        threshold = measured(condition.yardstick, number, past)
        if threshold is None or condition.yardstick is Yardstick.FIXED or condition.below:
            return threshold
        return max(threshold, _pick(condition.floor, variant) or 0.0)


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value
