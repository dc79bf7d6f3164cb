"""Judges a run step by step: reads the signals, measures the limits, and reports which conditions begin and end.

It has no state but its own bounded memory, and knows no feed, clock or trainer. It runs once a step, mostly on the
training thread, so it computes what does not change only once. Below the judge stands what it knows of one signal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan, nextafter
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from rlexporter.catalog.causes import WAKE
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.past import MOST, Past, Streak, measure, refresh, spread
from rlexporter.conditions.signals import ALLOWANCES
from rlexporter.conditions.view import Derive, Memory, View, value_range
from rlexporter.model.condition import Baseline, Condition, Family, Limit, Read, Severity, Signal, Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Standing, Transition
from rlexporter.model.metric import Series
from rlexporter.model.step import RunFacts

_MAX_SHAPES = 64
"""The most kinds of steps, by the series that they hold, whose signals are remembered."""
_LAST, _FEW, _GOOD_PART = 20, 5, 0.1
"""A number moves if its last 20 observations, of which there are 5, span a tenth of it, or of the way to its limit."""
_FIRST = itemgetter(0)
_NEVER_OVER = (Family.NONFINITE, Family.STALL)
"""What leaves no number that could be back: NaN was learned from, and what has stood still may do so again."""
Factor = float | Mapping[str, float]
"""The number of a limit: one for all variants of the signal, or one for each."""
Thresholds = Mapping[tuple[str, str], Factor | None]
"""The numbers that replace declared limits, by condition and severity; None turns a limit off."""


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
        self.values: dict[Series, float] = {}
        """The numbers of the last step that were compared with limits: gauges of the signals."""
        self.begin(RunFacts())

    def begin(self, facts: RunFacts) -> None:
        """Begin to judge a run; every condition applies to an algorithm that no condition names."""
        algorithm = facts.family
        self._sequence_level = facts.info.get("importance_sampling_level") == "sequence"
        unknown = not any(algorithm in condition.algorithms for condition in self._conditions)
        self.limits: list[tuple[Condition, Limit]] = []
        self._levels: list[tuple[SignalState, LimitState]] = []
        self._in_force: list[tuple[SignalState, LimitState]] = []
        self._states: dict[str, SignalState] = {}
        for signal in self._signals:
            origin = self._states[signal.of] if signal.of else None
            self._states[signal.name] = SignalState(signal, algorithm, self._derive, origin)
        self._awake: dict[tuple[object, ...], list[SignalState]] = {}
        self._resting = [state for state in self._states.values() if state.rests]
        self._calm = False
        """True if all of them were 0 when they were last asked for, as they stay until there is an anomaly."""
        past = {name: state.past for name, state in self._states.items()}
        self._memory = Memory(past, settings=facts.hyperparameters, resumed=facts.resumed)
        self._memory.flat, self._memory.same = Streak(facts.groups), Streak(facts.groups)
        for condition in self._conditions:
            for limit in condition.limits if unknown or condition.applies(algorithm) else ():
                factor = self._thresholds.get((condition.name, limit.severity.value), limit.value)
                if factor is not None:
                    state = self._states[condition.signal]
                    state.limits.append(LimitState(condition, limit, factor))
                    self.limits.append((condition, limit))
                    # A change from one value to the next is no share of a limit.
                    has_share = factor != 0.0 and condition.baseline is not Baseline.PREVIOUS
                    if has_share and limit.severity is not Severity.INFO:
                        self._levels.append((state, state.limits[-1]))
        self._zeros = {state.gauge: 0.0 for state in self._resting if state.limits}

    def step(self, view: View) -> list[Transition]:
        """Judge one step, or one log line of it, and return what has changed."""
        memory, changed, asked = self._memory, list[Transition](), self._asked(view)
        fresh = memory.fresh
        fresh.clear()
        memory.span, self._step = view.span, view.step
        self.values = values = self._zeros.copy() if self._calm else {}
        numbers, tensors, anew = view.numbers, view.counted, memory.anew
        for state in asked:
            if anew and self._ends(state):
                self._begin_anew(state, changed)
            for get in state.tried:
                if type(get) is str:
                    value = numbers.get(get)
                elif type(get) is Counted:
                    value = get.of(counted) if (counted := tensors.get(get.series)) is not None else None
                else:
                    memory.where, memory.about, memory.window = "", None, 0
                    value = get(view, memory)  # type: ignore[operator]
                if value is not None and value - value == 0.0:  # finite
                    break
            else:
                continue
            if get is not state.get or ((origin := state.origin) is not None and origin.places != state.origin_places):
                self._place(state, get, changed)
            past = state.past
            past.values.append(value)  # as `Past.add` does
            past.newest = fresh[state.name] = value
            past.count += 1
            if not past.low <= value <= past.high or len(past.values) > MOST:
                past.settle()
            if memory.again:
                memory.again = False
                state.tell_again()
            if state.limits:
                values[state.gauge] = value
                if past.count >= state.until or not state.low <= value <= state.high:
                    if type(get) in _READ:
                        memory.where, memory.about, memory.window = "", None, 0
                    self._judge(state, value, changed)
        if anew:
            self._begin_others_anew(asked, changed)
        if changed and any(transition.changed for transition in changed):
            self._in_force = [(state, limit) for state, limit in self._levels if limit.threshold is not None]
        return changed

    def _asked(self, view: View) -> Iterable[SignalState]:
        """Return the signals that may have a value in this step, in the order of evaluation."""
        quiet = view.advanced and not view.anomalies.nonfinite
        self._calm = quiet and (self._calm or all(map(_is_at_0, self._resting)))
        tensors = tuple([series.metric.series for series in view.seen]) if view.seen else ()
        shape = tuple(view.numbers), tuple(view.functions), tensors, self._calm  # nearly every step has that of another
        asked = self._awake.get(shape)
        if asked is None:
            if len(self._awake) >= _MAX_SHAPES:
                self._awake.clear()
            asked = [state for state in awake(self._states.values(), view) if not (state.rests and self._calm)]
            self._awake[shape] = asked
        return asked

    def _begin_others_anew(self, asked: Iterable[SignalState], changed: list[Transition]) -> None:
        """Begin anew with those signals too that were not asked in this step."""
        for state in self._states.values():
            if state not in asked and self._ends(state):
                self._begin_anew(state, changed)
        self._memory.anew = set()

    def _ends(self, state: SignalState) -> bool:
        """Return True if the past of a signal ends with this step, as it, or what it is derived from, begins anew."""
        anew, origin = self._memory.anew, state.origin
        if state.name not in anew and (origin is None or origin.name not in anew):
            return False
        anew.add(state.name)
        return True

    def nearest(self) -> tuple[str, float] | None:
        """Return the signal nearest to a limit of an alert, and how near: 1 is at the limit; None where none is near.

        Only numbers and limits above 0 have a share of each other. A number that stands still within its limit comes no
        nearer, however large its share is: 1, where a healthy run has 1 and 0.75 is too little.
        """
        shares = []
        for state, limit in self._in_force:
            value, threshold = state.past.newest, limit.threshold
            if value > 0.0 and threshold is not None and threshold > 0.0:
                shares.append((threshold / value if limit.below else value / threshold, state, threshold))
        for share, state, threshold in sorted(shares, key=_FIRST, reverse=True):
            if share >= 1.0 or _moves(state.past, threshold):
                return state.name, share
        return None

    def past(self, signal: str) -> Past:
        """Return the past of ``signal``."""
        return self._states[signal].past

    def _place(self, state: SignalState, get: Getter, changed: list[Transition]) -> None:
        """Read a signal at another source from now on, never at a worse one; begin anew if it, or its origin, moves."""
        origin = state.origin
        if state.get is not None and (get is not state.get or state.origin_places):
            self._begin_anew(state, changed)
        state.get, place = get, state.getters.index(get)
        state.places += 1
        state.began = self._step
        state.tried = state.getters[: place + 1]
        source: Source = state.sources[place]
        if origin is not None:
            state.series, state.variant, state.origin_places = origin.series, origin.variant, origin.places
        else:
            sequence = source.variant == "token" and self._sequence_level
            state.series = source.series if not source.derived else ""
            state.variant = "gspo" if sequence else source.variant
        self._memory.variant[state.name] = state.variant

    def _begin_anew(self, state: SignalState, changed: list[Transition]) -> None:
        """Forget all that depends on the source that a signal had: its past, limits, and windows.

        What holds ends, since value, limit and series of a condition are of one source. The new source may be in
        another unit, or may have no limit, and has the first word in this very step.
        """
        for limit in state.limits:
            if limit.threshold is not None:
                changed.append(
                    Transition(
                        *(limit.condition, limit.limit, nan, Standing.OVER, False, state.past.newest, state.series),
                        *(state.unit, "", limit.since, limit.active or limit.eased),
                    )
                )
                limit.begin_anew()
        state.past, state.measures = Past(), {}
        state.until, state.began = 0, self._step
        self._memory.begin_anew(state.name, state.past)

    def _judge(self, state: SignalState, value: float, changed: list[Transition]) -> None:
        past = state.past
        low, high, until, allowed = -inf, inf, inf, dict[str, float]()
        for limit in state.limits:
            if past.count <= limit.min_observations:
                until = min(until, limit.min_observations + 1)
                continue
            threshold = limit.constant
            if threshold is None:
                threshold, stays = limit.find(state.variant, past, state.measures)
                until = min(until, stays)
                if threshold is None:
                    continue
            before = limit.threshold
            beyond = value < threshold if limit.below else value > threshold
            if beyond and (why := limit.learning):
                if why not in allowed:
                    allowed[why] = ALLOWANCES[why](self._memory)
                beyond = value > threshold * allowed[why]
            if beyond:  # one more changes nothing where all of the window are
                still = limit.active and limit.beyond == limit.window.maxlen and not limit.learning
            else:
                still = not limit.beyond and not limit.eased
            if still and before == threshold:  # nearly every step
                if limit.below is beyond:
                    high = min(high, nextafter(threshold, -inf) if beyond else threshold)
                else:
                    low = max(low, nextafter(threshold, inf) if beyond else threshold)
                continue
            until = 0
            limit.threshold = threshold
            over = limit.eased and not beyond and self._is_over(limit, value)
            if not beyond and not limit.beyond and not over:
                was = False
            else:
                if beyond and not limit.beyond:
                    limit.since = self._step
                was, limit.active = limit.active, limit.observe(beyond)
            if limit.active is not was or before != threshold or over:
                changed.append(self._transition(state, limit, value, threshold, was, over=over, first=before is None))
        state.low, state.high, state.until = low, high, until

    def _transition(
        self,
        state: SignalState,
        limit: LimitState,
        value: float,
        threshold: float,
        was: bool,
        *,
        over: bool,
        first: bool,
    ) -> Transition:
        """Return the change of a limit, and note the level of the run when it begins."""
        began, ended = limit.active and not was, was and not limit.active
        if began:
            self._begin(state, limit, threshold)
        elif ended:
            limit.eased = limit.limit.severity is not Severity.INFO
            if limit.level is not None:
                limit.level.left()
        standing = Standing.HOLDS if limit.active else Standing.EASED if limit.eased else Standing.OVER
        memory = self._memory
        series = memory.where or state.series
        subject, since = memory.subject
        since = since or limit.since
        changed = began or ended or over or first
        return Transition(
            *(limit.condition, limit.limit, threshold, standing, began, value, series),
            *(state.unit, subject, since, changed, self._onset(state, limit, since) if began else None),
        )

    def _onset(self, state: SignalState, limit: LimitState, since: int) -> int:
        """Return the first step in which what begins now, and shows ``since`` a step, may have begun.

        That is when the number left the level that the run had before, less the observations that it is computed from,
        and within the `horizon`.
        """
        away = limit.level.away(state.past) if limit.level is not None else 1
        apart = self._apart(state)
        window = self._memory.window or state.window
        onset = min(since, self._step - (away - 1) * apart) - (window - 1) * apart
        return max(0, onset, min(since, self._step - self.horizon() + 1))

    def horizon(self) -> int:
        """Return the steps after which no older one is taken for the beginning of something critical.

        These are twice the steps that the slowest condition takes to be certain of what begins at once: what drifts
        takes longer. One number is certain at once; others take the observations that they are computed from, and those
        that a limit wants to be beyond it.
        """
        certain = [
            (limit.limit.k_of_n[1] + state.window - 2) * self._apart(state)
            for state in self._states.values()
            for limit in state.limits
            if limit.limit.severity is Severity.CRITICAL and state.past.count
        ]
        return 2 * max(certain, default=0) + 1

    def _apart(self, state: SignalState) -> int:
        """Return the steps from one observation of a signal to the next."""
        return max(1, round((self._step - state.began) / max(1, state.past.count - 1)))

    def _begin(self, state: SignalState, limit: LimitState, threshold: float) -> None:
        """Note the level before an incident; one that was not over goes on, with the level before it."""
        condition = limit.condition
        if not limit.eased and condition.family not in _NEVER_OVER and limit.limit.severity is not Severity.INFO:
            of = self._states[condition.level] if condition.level else state
            level = threshold if of is state else of.past.newest
            limit.level = Level(of.past, limit.limit.k_of_n[1] + WAKE, level, limit.below)
        limit.eased = False

    def _is_over(self, limit: LimitState, value: float) -> bool:
        """Return True once what has eased is back at the level that the run had before."""
        of = limit.condition.level
        if limit.level is None or not limit.level.is_back(self._states[of].past.newest if of else value):
            return False
        limit.eased, limit.level = False, None
        return True


def _moves(past: Past, limit: float) -> bool:
    """Return True unless the last observations of a positive number are all the same, or nearly so."""
    least = _GOOD_PART * min(past.newest, abs(limit - past.newest))
    if past.count < _FEW or past.high - past.low < least:
        return False
    recent = past.values[-_LAST:]
    return max(recent) - min(recent) >= least


def _is_at_0(state: SignalState) -> bool:
    """Return True if a signal was 0 when it was last asked for, and every limit on it has been judged."""
    return state.past.newest == 0.0 and all(limit.constant is not None for limit in state.limits)


# A signal of a run with its limits: the numbers in force, what was beyond them lately, and the level before that

_SIGNAL = NAMED["rl_signal"]

_KEPT = 50
_ENOUGH = 5
_BACK = 10
"""The observations whose median must be back."""
_SPREADS = 3.0
_SHARE = 0.25
"""The share of the way from the old level to the limit that still counts as the old level."""
_LITTLE = 0.02
"""The share of that way that a number without any noise goes by itself."""


class Counted(NamedTuple):
    """Says what is read at the histogram of a tensor."""

    series: str
    of: Callable[[Histogram], float | None]


Getter = Derive | str | Counted
"""A function, the name of a number that is used as it is, or what is read at a tensor."""
_READ = (str, Counted)

Measures = dict[Callable[[Past], float | None], tuple[float | None, int]]
"""Measures of a past, each with the number of observations there were."""


class Level:
    """The level of one signal before an incident. ``below``: True if what went wrong was a fall."""

    __slots__ = ("_below", "_bound", "_recent", "_usual")

    def __init__(self, past: Past, lag: int, limit: float, below: bool) -> None:
        """Measure ``past`` without its newest ``lag``; one that is too short had no level but ``limit`` itself."""
        self._below = below
        self._recent: deque[float] = deque(maxlen=_BACK)
        self._bound = self._usual = limit
        values = past.last(_KEPT, lag)
        if len(values) >= _ENOUGH:
            middle, width = spread(values)
            self._bound = self._reached(middle, max(_SPREADS * width, _SHARE * abs(limit - middle)), limit)
            self._usual = self._reached(middle, max(_SPREADS * width, _LITTLE * abs(limit - middle)), limit)

    def _reached(self, middle: float, reach: float, limit: float) -> float:
        return max(limit, middle - reach) if self._below else min(limit, middle + reach)

    def away(self, past: Past) -> int:
        """Return how many of the newest observations of ``past`` came after the last two that were usual."""
        usual = [value >= self._usual if self._below else value <= self._usual for value in past.values]
        for place in range(len(usual) - 1, 0, -1):
            if usual[place] and usual[place - 1]:
                return max(1, len(usual) - 1 - place)
        return len(usual)

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


class LimitState:
    """A limit of a condition, and which of the last n observations were beyond it."""

    __slots__ = (
        *("active", "below", "beyond", "condition", "constant", "eased", "enough", "every", "factor", "floor"),
        *(
            "learning",
            "level",
            "limit",
            "measure",
            "min_observations",
            "number",
            "settles",
            "since",
            "threshold",
            "variant",
        ),
        "window",
    )

    def __init__(self, condition: Condition, limit: Limit, factor: Factor) -> None:
        self.condition = condition
        self.limit = limit
        self.factor = factor
        self.below = condition.below
        self.learning = limit.learning if factor == limit.value else ""
        """What may raise the limit; nothing does that to a number that the user has set."""
        self.min_observations = condition.min_observations
        self.enough, size = limit.k_of_n
        self.window: deque[bool] = deque(maxlen=size)
        self.beyond = 0
        self.active = self.eased = False
        self.level: Level | None = None
        """The level of the run before the incident that is not over; None if none is, or it never will be."""
        self.since = 0
        self.measure = measure(condition.baseline)
        self.every, self.settles = refresh(condition.baseline), condition.baseline.settles
        self.threshold: float | None = None
        self.constant: float | None = None
        """The limit, once it will not change any more."""
        self.variant: str | None = None

    def choose(self, variant: str) -> None:
        """Take the numbers for this ``variant`` of the signal; None if it has none."""
        self.variant = variant
        self.number = _pick(self.factor, variant)
        self.floor = _pick(self.condition.floor, variant) or 0.0

    def find(self, variant: str, past: Past, measures: Measures) -> tuple[float | None, float]:
        """Return the limit in force, and the number of observations with which it may be another one.

        It is None if the variant has none, or the past is too short. ``measures``: those that were taken of this past
        lately, and when.
        """
        if variant != self.variant:
            self.choose(variant)
        threshold, measure, stays = self.number, self.measure, inf
        if threshold is None:
            return None, inf
        if measure is not None:
            level, at = measures.get(measure, (None, 0))
            if level is None or past.count - at >= self.every:
                level, at = measure(past), past.count
                measures[measure] = (level, at)
            if level is None:
                return None, past.count + 1
            stays = at + self.every
            threshold *= level
            if not self.below and threshold < self.floor:
                threshold = self.floor
        if self.settles:
            self.constant = threshold
            stays = inf
        return threshold, stays

    def begin_anew(self) -> None:
        """Forget what was observed and measured at another source."""
        self.window.clear()
        self.beyond = 0
        self.active = self.eased = False
        self.level = None
        self.threshold = self.constant = None

    def observe(self, beyond: bool) -> bool:
        """Add one observation, and return True if the condition holds."""
        window = self.window
        if len(window) == window.maxlen:
            self.beyond -= window[0]
        window.append(beyond)
        self.beyond += beyond
        return self.beyond >= self.enough


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value


class SignalState:
    """A signal of a run: its sources, its past, and the limits on it."""

    __slots__ = (
        *("gauge", "get", "getters", "high", "limits", "low", "measures", "name", "origin", "origin_places", "past"),
        *("places", "rests", "series", "sources", "tried", "unit", "until", "variant", "began", "window"),
    )

    def __init__(
        self, signal: Signal, algorithm: str, derive: Mapping[str, Derive], origin: SignalState | None
    ) -> None:
        self.name, self.unit, self.rests, self.window = signal.name, signal.unit, signal.rests, signal.window
        self.began = 0
        """The step of the first observation of its past."""
        self.gauge = Series(_SIGNAL, (signal.name,))
        self.origin = origin
        """The signal that this one is derived from."""
        self.sources = [source for source in signal.sources if not source.algorithms or algorithm in source.algorithms]
        self.getters = [getter(source, derive) for source in self.sources]
        self.get: Getter | None = None
        """The getter that it was read with last; None before it was read."""
        self.tried = self.getters
        """The getters of the source that was read last and of all better ones."""
        self.places = self.origin_places = 0
        """The number of sources that this signal, and its origin, had so far."""
        self.series = self.variant = ""
        self.past = Past()
        self.limits: list[LimitState] = []
        self.measures: Measures = {}
        self.low, self.high = inf, -inf
        """The range in which a value changes nothing, as it is beyond the same limits as all lately."""
        self.until: float = 0
        """The number of observations with which one of the limits may change."""

    def tell_again(self) -> None:
        """Let the limits begin again, if they are still crossed: what is wrong now is worse than what was told."""
        self.until = 0
        for limit in self.limits:
            limit.window.clear()
            limit.beyond, limit.active = 0, False


def awake(states: Iterable[SignalState], view: View) -> list[SignalState]:
    """Return those of ``states`` that may have a value in a step of this shape. They are in the order of evaluation."""
    there = {*view.numbers, *view.functions, *(series.metric.series for series in view.seen)}
    asked = []
    for state in states:
        reads = (source.reads if source.derived else (source.series,) for source in state.sources)
        if any(not names or not there.isdisjoint(names) for names in reads):
            asked.append(state)
            there.add(state.name)
    return asked


def getter(source: Source, derive: Mapping[str, Derive]) -> Getter:
    """Return the getter of ``source``; a function returns None or NaN if the step does not have it."""
    if source.read is Read.DERIVED:
        return derive[source.series]
    return source.series if source.read is Read.VALUE else Counted(source.series, _of(source))


def _of(source: Source) -> Callable[[Histogram], float | None]:
    if source.read is Read.MEAN:
        return lambda counted: counted.finite_mean
    if source.read is Read.MINUS_MEAN:
        return lambda counted: -counted.finite_mean
    if source.read is Read.SPREAD:
        return value_range
    low, high = source.outside

    def share(counted: Histogram) -> float | None:
        count, pairs = counted.count, zip(counted.bounds, counted.counts, strict=False)
        return 1.0 - sum([number for bound, number in pairs if low < bound <= high]) / count if count else None

    return share
