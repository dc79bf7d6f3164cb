"""Judges a run step by step: reads the signals, measures the limits, and says which conditions begin and end.

Pure but for its own bounded memory: nothing here knows the store, the clock or a trainer. It runs on the training
thread, once a step: what does not change is computed once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlexporter.condition import Baseline, Condition, Limit, Signal, Source
from rlexporter.conditions.declare import Derive
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.sources import getter
from rlexporter.conditions.view import View
from rlexporter.conditions.yardsticks import measured

Factor = float | Mapping[str, float]
"""The number of a limit: one, or one by variant of the signal."""
Thresholds = Mapping[tuple[str, str], Factor | None]
"""Numbers of limits that differ from the declared ones, by condition and severity; None: off."""


class Verdict(NamedTuple):
    """What has changed for one limit of a condition in a step."""

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
    """One limit of one condition: how many of the last n observations were beyond it."""

    __slots__ = ("active", "beyond", "condition", "constant", "enough", "factor", "limit", "threshold", "window")

    def __init__(self, condition: Condition, limit: Limit, factor: Factor) -> None:
        self.condition = condition
        self.limit = limit
        self.factor = factor
        self.enough, size = limit.k_of_n
        self.window: deque[bool] = deque(maxlen=size)
        self.beyond = 0
        self.active = False
        self.threshold: float | None = None
        self.constant: float | None = None
        """The limit where it will not change any more."""

    def observe(self, beyond: bool) -> bool:
        """Whether the condition holds, with one more observation."""
        window = self.window
        if len(window) == window.maxlen:
            self.beyond -= window[0]
        window.append(beyond)
        self.beyond += beyond
        return self.beyond >= self.enough


class _Reading:
    """One signal of a run: where it is read, what it was, and what is judged by it."""

    __slots__ = ("getters", "held", "name", "of", "past", "rank", "series", "sources", "variant")

    def __init__(self, signal: Signal, algorithm: str, derive: Mapping[str, Derive]) -> None:
        self.name = signal.name
        self.of = signal.of
        self.sources = [each for each in signal.sources if not each.algorithms or algorithm in each.algorithms]
        self.getters = [getter(source, derive) for source in self.sources]
        self.rank = len(self.sources)
        self.series = self.variant = ""
        self.past = Past()
        self.held: list[_Held] = []


class Judge:
    """Judges one run. ``derive``: the functions of derived signals; ``thresholds``: limits that a person has set."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        signals: Sequence[Signal],
        derive: Mapping[str, Derive],
        thresholds: Thresholds | None = None,
    ) -> None:
        self._conditions = conditions
        self._signals = signals
        self._derive = derive
        self._thresholds = thresholds or {}
        self.begin("")

    def begin(self, algorithm: str, *, sequence_level: bool = False, resumed: bool = False) -> None:
        """A run of this algorithm begins; one that nobody knows can have everything.

        ``sequence_level``: its ratios are of sequences. ``resumed``: its first step is not that of the run.
        """
        self._sequence_level = sequence_level
        unknown = not any(algorithm in each.algorithms for each in self._conditions)
        self.limits: list[tuple[Condition, Limit]] = []
        self._readings = {signal.name: _Reading(signal, algorithm, self._derive) for signal in self._signals}
        self._memory = Memory({name: reading.past for name, reading in self._readings.items()}, resumed=resumed)
        for condition in self._conditions:
            for limit in condition.limits if unknown or condition.applies(algorithm) else ():
                factor = self._thresholds.get((condition.name, limit.severity.value), limit.value)
                if factor is not None:
                    self._readings[condition.signal].held.append(_Held(condition, limit, factor))
                    self.limits.append((condition, limit))

    def step(self, view: View) -> list[Verdict]:
        """Judge one step, or a line that belongs to one."""
        memory = self._memory
        memory.fresh = fresh = set[str]()
        changed: list[Verdict] = []
        for name, reading in self._readings.items():
            memory.where = ""
            for rank, get in enumerate(reading.getters):
                if rank > reading.rank:
                    break  # it is read at a better place, which this step does not have
                value = get(view, memory)
                if value is not None and value - value == 0.0:  # finite
                    if rank != reading.rank or reading.of:
                        self._place(reading, rank)
                    reading.past.add(value)
                    fresh.add(name)
                    if reading.held:
                        self._judge(reading, value, changed)
                    break
        return changed

    def past(self, signal: str) -> Past:
        """What a signal was so far."""
        return self._readings[signal].past

    def _place(self, reading: _Reading, rank: int) -> None:
        """A signal that is read at a better place from now on has no past there; it never goes back to a worse one."""
        if reading.rank < len(reading.sources) and rank != reading.rank:
            reading.past = self._memory.past[reading.name] = Past()
        reading.rank = rank
        source: Source = reading.sources[rank]
        if reading.of:
            origin = self._readings[reading.of]
            reading.series, reading.variant = origin.series, origin.variant
        else:
            sequence = source.variant == "token" and self._sequence_level
            reading.series = source.series if not source.derived else ""
            reading.variant = "gspo" if sequence else source.variant
        self._memory.variant[reading.name] = reading.variant

    def _judge(self, reading: _Reading, value: float, changed: list[Verdict]) -> None:
        past = reading.past
        for held in reading.held:
            condition = held.condition
            if past.count <= condition.min_observations:
                continue
            threshold = held.constant
            if threshold is None:
                threshold = self._threshold(held, reading.variant, past)
                if threshold is None:
                    continue
            was = held.active
            held.active = held.observe(value < threshold if condition.below else value > threshold)
            if held.active is not was or threshold != held.threshold:
                held.threshold = threshold
                series = self._memory.where or reading.series
                began = held.active and not was
                changed.append(Verdict(condition, held.limit, threshold, held.active, began, value, series))

    def _threshold(self, held: _Held, variant: str, past: Past) -> float | None:
        """The limit in force; None where this kind of number has none, or there is no past yet."""
        condition = held.condition
        number = _pick(held.factor, variant)
        threshold = None if number is None else measured(condition.baseline, number, past)
        if threshold is None:
            return None
        if condition.baseline is not Baseline.FIXED and not condition.below:
            threshold = max(threshold, _pick(condition.floor, variant) or 0.0)
        if condition.baseline.settles:
            held.constant = threshold
        return threshold


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value
