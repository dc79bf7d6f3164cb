"""Judges a run step by step: reads the signals, measures the limits, and reports which conditions begin and end.

It has no state but its own bounded memory, and knows no store, clock or trainer. It runs on the training thread, once a
step, so it computes what does not change only once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlexporter.catalog.causes import WAKE
from rlexporter.conditions.baselines import Measure, measure, measured, refresh
from rlexporter.conditions.chance import Streak
from rlexporter.conditions.declare import Derive
from rlexporter.conditions.level import Level
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.sources import getter
from rlexporter.conditions.view import View
from rlexporter.model.condition import Condition, Family, Limit, Severity, Signal, Source
from rlexporter.model.incident import Standing
from rlexporter.model.step import RunFacts

Factor = float | Mapping[str, float]
"""The number of a limit: one for all variants of the signal, or one for each."""
Thresholds = Mapping[tuple[str, str], Factor | None]
"""The numbers that replace declared limits, by condition and severity; None turns a limit off."""


class Transition(NamedTuple):
    """The change of one limit of a condition in a step."""

    condition: Condition
    limit: Limit
    threshold: float
    """The limit in force, in the unit of the signal."""
    standing: Standing
    began: bool
    value: float
    series: str
    """The series at which the signal was read."""
    subject: str
    """What it is about, where the signal is of several things."""
    since: int
    """The step since which the number has been beyond the limit."""
    changed: bool = True
    """True if more than the threshold has changed: judged for the first time, begun, or ended."""

    @property
    def active(self) -> bool:
        """Return True while the condition holds."""
        return self.standing is Standing.HOLDS


_Measures = dict[Callable[[Past], Measure | None], tuple[Measure | None, int]]
"""Measures of a past, each with the number of observations there were."""


class _LimitState:
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

    def observe(self, beyond: bool) -> bool:
        """Add one observation, and return True if the condition holds."""
        window = self.window
        if len(window) == window.maxlen:
            self.beyond -= window[0]
        window.append(beyond)
        self.beyond += beyond
        return self.beyond >= self.enough


class _SignalState:
    """A signal of a run: its sources, its past, and the limits on it."""

    __slots__ = (
        "getters",
        "limits",
        "measures",
        "name",
        "of",
        "past",
        "place",
        "series",
        "sources",
        "tried",
        "variant",
    )

    def __init__(self, signal: Signal, algorithm: str, derive: Mapping[str, Derive]) -> None:
        self.name = signal.name
        self.of = signal.of
        self.sources = [each for each in signal.sources if not each.algorithms or algorithm in each.algorithms]
        self.getters = [getter(source, derive) for source in self.sources]
        self.tried = self.getters
        """The getters of the source that was read last and of all better ones."""
        self.place = len(self.sources)
        self.series = self.variant = ""
        self.past = Past()
        self.limits: list[_LimitState] = []
        self.measures: _Measures = {}


class Judge:
    """Judges one run. ``derive``: the functions of derived signals; ``thresholds``: limits that the user has set."""

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
        self._step = 0
        self.begin(RunFacts())

    def begin(self, facts: RunFacts) -> None:
        """Begin to judge a run; every condition applies to an algorithm that no condition names."""
        algorithm = facts.family
        self._sequence_level = facts.info.get("importance_sampling_level") == "sequence"
        unknown = not any(algorithm in each.algorithms for each in self._conditions)
        self.limits: list[tuple[Condition, Limit]] = []
        self._states = {signal.name: _SignalState(signal, algorithm, self._derive) for signal in self._signals}
        past = {name: state.past for name, state in self._states.items()}
        self._memory = Memory(past, settings=facts.hyperparameters, resumed=facts.resumed)
        self._memory.flat, self._memory.same = Streak(facts.groups), Streak(facts.groups)
        for condition in self._conditions:
            for limit in condition.limits if unknown or condition.applies(algorithm) else ():
                factor = self._thresholds.get((condition.name, limit.severity.value), limit.value)
                if factor is not None:
                    self._states[condition.signal].limits.append(_LimitState(condition, limit, factor))
                    self.limits.append((condition, limit))

    def step(self, view: View) -> list[Transition]:
        """Judge one step, or one log line of it, and return what has changed."""
        memory = self._memory
        memory.fresh = fresh = set[str]()
        memory.span = view.span
        self._step = view.step
        changed: list[Transition] = []
        numbers = view.numbers
        for name, state in self._states.items():
            memory.where = memory.subject = ""
            for place, get in enumerate(state.tried):
                value = numbers.get(get) if type(get) is str else get(view, memory)  # type: ignore[operator]
                if value is not None and value - value == 0.0:  # finite
                    if place != state.place or (state.of and self._has_moved(state)):
                        self._place(state, place)
                    state.past.add(value)
                    fresh.add(name)
                    if state.limits:
                        self._judge(state, value, changed)
                    break
        return changed

    def past(self, signal: str) -> Past:
        """Return the past of ``signal``."""
        return self._states[signal].past

    def _place(self, state: _SignalState, place: int) -> None:
        """Read a signal at another source from now on: without the past of the old one, and never at a worse one."""
        if state.place < len(state.sources) and place != state.place:
            state.past, state.measures = Past(), {}
            self._memory.past[state.name] = state.past
        state.place = place
        state.tried = state.getters[: place + 1]
        source: Source = state.sources[place]
        if state.of:
            origin = self._states[state.of]
            state.series, state.variant = origin.series, origin.variant
        else:
            sequence = source.variant == "token" and self._sequence_level
            state.series = source.series if not source.derived else ""
            state.variant = "gspo" if sequence else source.variant
        self._memory.variant[state.name] = state.variant

    def _has_moved(self, state: _SignalState) -> bool:
        """Return True if the signal that ``state`` is derived from has changed its source."""
        origin = self._states[state.of]
        return state.variant != origin.variant or state.series != origin.series

    def _judge(self, state: _SignalState, value: float, changed: list[Transition]) -> None:
        past = state.past
        for each in state.limits:
            if past.count <= each.min_observations:
                continue
            threshold = each.constant
            if threshold is None:
                threshold = _threshold(each, state.variant, past, state.measures)
                if threshold is None:
                    continue
            before, each.threshold = each.threshold, threshold
            beyond = value < threshold if each.below else value > threshold
            over = each.eased and not beyond and self._is_over(each, value)
            if not beyond and not each.beyond and not over:  # nearly every step: nothing in the window is beyond it
                was = False
                if before == threshold:
                    continue
            else:
                if beyond and not each.beyond:
                    each.since = self._step
                was, each.active = each.active, each.observe(beyond)
            if each.active is not was or before != threshold or over:
                changed.append(self._transition(state, each, value, was, over=over, first=before is None))

    def _transition(
        self, state: _SignalState, each: _LimitState, value: float, was: bool, *, over: bool, first: bool
    ) -> Transition:
        """Return the change of a limit, and note the level of the run when it begins."""
        began, ended = each.active and not was, was and not each.active
        if began:
            self._begin(state, each)
        elif ended:
            each.eased = each.limit.severity is not Severity.INFO
            if each.level is not None:
                each.level.left()
        standing = Standing.HOLDS if each.active else Standing.EASED if each.eased else Standing.OVER
        memory, threshold = self._memory, each.threshold
        assert threshold is not None  # it was compared with the value
        series = memory.where or state.series
        since = memory.subject_since if memory.subject else each.since
        changed = began or ended or over or first
        return Transition(
            each.condition, each.limit, threshold, standing, began, value, series, memory.subject, since, changed
        )

    def _begin(self, state: _SignalState, each: _LimitState) -> None:
        """Note the level before an incident; one that was not over goes on, with the level before it."""
        condition, threshold = each.condition, each.threshold or 0.0
        if not each.eased and condition.family is not Family.NONFINITE and each.limit.severity is not Severity.INFO:
            of = self._states[condition.level] if condition.level else state
            limit = threshold if of is state else of.past.newest
            each.level = Level(of.past, each.limit.k_of_n[1] + WAKE, limit, each.below)
        each.eased = False

    def _is_over(self, each: _LimitState, value: float) -> bool:
        """Return True once what has eased is back at the level that the run had before."""
        of = each.condition.level
        if each.level is None or not each.level.is_back(self._states[of].past.newest if of else value):
            return False
        each.eased, each.level = False, None
        return True


def _threshold(limit: _LimitState, variant: str, past: Past, measures: _Measures) -> float | None:
    """Return the limit in force; None if the variant has none, or the past is too short.

    ``measures``: those that were taken of this past lately, and when.
    """
    if variant != limit.variant:
        limit.choose(variant)
    threshold, measure = limit.number, limit.measure
    if threshold is None:
        return None
    if measure is not None:
        found, at = measures.get(measure, (None, 0))
        if found is None or past.count - at >= limit.every:
            found = measure(past)
            measures[measure] = (found, past.count)
        if found is None:
            return None
        threshold = measured(threshold, found)
        if not limit.below and threshold < limit.floor:
            threshold = limit.floor
    if limit.condition.baseline.settles:
        limit.constant = threshold
    return threshold


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value
