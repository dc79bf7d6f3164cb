"""Judges a run step by step: reads the signals, compares them with limits, reports which conditions begin and end.

It has no state but its own bounded memory, and knows no feed, clock or trainer. It runs once a step, mostly on the
training thread. Below the judge stands what it knows of one signal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan, nextafter
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.causes import WAKE
from rlexporter.conditions.detectors import MOST, Past, spread
from rlexporter.conditions.learning import LEARNED, explains
from rlexporter.conditions.view import Compute, Context, Reading, View, value_range
from rlexporter.model.condition import Condition, Family, Limit, Read, Severity, Signal, Source
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
Makers = Mapping[str, Callable[[], Compute]]
"""Makes what computes a derived signal in one run, by name."""


class Judge:
    """Judges one run. ``makers``: those of derived signals; ``thresholds``: limits that the user has set."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        signals: Sequence[Signal],
        makers: Makers,
        thresholds: Thresholds | None = None,
    ) -> None:
        self._conditions = conditions
        self._signals = signals
        self._makers = makers
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
        self._drawn: list[tuple[SignalState, LimitState]] = []
        self._in_force: list[tuple[SignalState, LimitState]] = []
        self._states: dict[str, SignalState] = {}
        for signal in self._signals:
            origin = self._states[signal.of] if signal.of else None
            self._states[signal.name] = SignalState(signal, algorithm, self._makers, origin)
        self._awake: dict[tuple[object, ...], list[SignalState]] = {}
        past = {name: state.past for name, state in self._states.items()}
        self._run = Context(past, settings=facts.hyperparameters, groups=facts.groups, resumed=facts.resumed)
        for condition in self._conditions:
            for limit in condition.limits if unknown or condition.applies(algorithm) else ():
                key = condition.name, limit.severity.value
                factor = self._thresholds.get(key, limit.value)
                if factor is None and key in self._thresholds:
                    continue
                state = self._states[condition.signal]
                state.limits.append(LimitState(condition, limit, 0.0 if factor is None else factor))
                state.finding = condition.finding
                self.limits.append((condition, limit))
                if factor and limit.severity is not Severity.INFO:
                    self._drawn.append((state, state.limits[-1]))

    def step(self, view: View) -> list[Transition]:  # noqa: PLR0915 - a loop in which each call costs
        """Judge one step, or one log line of it, and return what has changed."""
        run, changed, asked = self._run, list[Transition](), self._asked(view)
        fresh = run.fresh
        fresh.clear()
        run.subjects.clear()
        self._step = view.step
        self.values = values = {}
        restarted, numbers = run.restarted, view.numbers
        for state in asked:
            if restarted and self._ends(state):
                self._restart(state, changed)
            if (plain := state.plain) is not None:  # a call for each signal is what costs most
                value = numbers.get(plain)
                if value is None or value - value != 0.0:
                    continue
                get, reading = state.tried[0], None
            else:
                read = state.read(view, run)
                if read is None:
                    continue
                get, value, reading = read
            if get is not state.get or ((origin := state.origin) is not None and origin.places != state.origin_places):
                self._place(state, get, changed)
            past = state.past
            past.values.append(value)  # as `Past.add` does
            past.newest = fresh[state.name] = value
            past.count += 1
            if not past.low <= value <= past.high or len(past.values) > MOST:
                past.settle()
            if reading is not None and reading.subject:
                run.subjects[state.name] = reading.subject
                if reading.worse or state.has_news(reading):
                    state.say_again()
            if state.limits:
                if not state.finding:
                    values[state.gauge] = value
                if past.count >= state.until or not state.low <= value <= state.high:
                    self._judge(state, value, reading or _PLAIN, changed)
        if restarted:
            self._begin_others_again(asked, changed)
        if changed:
            self._in_force = [(state, limit) for state, limit in self._drawn if limit.threshold is not None]
        return changed

    def _asked(self, view: View) -> Iterable[SignalState]:
        """Return the signals that may have a value in this step, in the order of evaluation."""
        tensors = tuple([series.metric.series for series in view.seen]) if view.seen else ()
        shape = tuple(view.numbers), tuple(view.functions), tensors  # nearly every step has that of another
        asked = self._awake.get(shape)
        if asked is None:
            if len(self._awake) >= _MAX_SHAPES:
                self._awake.clear()
            asked = self._awake[shape] = awake(self._states.values(), view)
        return asked

    def _begin_others_again(self, asked: Iterable[SignalState], changed: list[Transition]) -> None:
        """Begin again with those signals too that were not asked in this step."""
        for state in self._states.values():
            if state not in asked and self._ends(state):
                self._restart(state, changed)
        self._run.restarted = set()

    def _ends(self, state: SignalState) -> bool:
        """Return True if the past of a signal ends with this step, as it, or what it is derived from, begins again."""
        restarted, origin = self._run.restarted, state.origin
        if state.name not in restarted and (origin is None or origin.name not in restarted):
            return False
        restarted.add(state.name)
        return True

    def nearest(self) -> tuple[str, float] | None:
        """Return the signal nearest to a limit of an alert, and how near: 1 is at the limit; None where none is near.

        Only numbers and limits above 0 have a share of each other. A number that stands still within its limit comes no
        nearer, however large its share is: 1, where a healthy run has 1 and 0.75 is too little.
        """
        shares = []
        for state, limit in self._in_force:
            value, threshold = state.past.newest, limit.threshold or 0.0
            if value > 0.0 and threshold > 0.0:
                shares.append((threshold / value if limit.below else value / threshold, state, threshold))
        for share, state, threshold in sorted(shares, key=_FIRST, reverse=True):
            if share >= 1.0 or _moves(state.past, threshold):
                return state.name, share
        return None

    def past(self, signal: str) -> Past:
        """Return the past of ``signal``."""
        return self._states[signal].past

    def _place(self, state: SignalState, get: Getter, changed: list[Transition]) -> None:
        """Read a signal elsewhere from now on, never at a worse source; begin again if it, or its origin, moves."""
        origin = state.origin
        if state.get is not None and (get is not state.get or state.origin_places):
            if get is not state.get:
                self._restart(state, changed)
            else:  # what computes it was renewed when its origin moved
                self._begin_again(state, changed)
        state.get, place = get, state.getters.index(get)
        state.places += 1
        state.began = self._step
        state.tried = state.getters[: place + 1]
        state.plain = get if place == 0 and isinstance(get, str) else None
        source: Source = state.sources[place]
        if origin is not None:
            state.series, state.variant, state.origin_places = origin.series, origin.variant, origin.places
        else:
            sequence = source.variant == "token" and self._sequence_level
            state.series = source.series if not source.derived else ""
            state.variant = "gspo" if sequence else source.variant
        self._run.variant[state.name] = state.variant

    def _begin_again(self, state: SignalState, changed: list[Transition]) -> None:
        """Forget all that depends on the source that a signal had: its past, limits, and windows.

        What holds ends, since value, limit and series of a condition are of one source. The new source may be in
        another unit, or may have no limit, and has the first word in this very step.
        """
        for limit in state.limits:
            if limit.threshold is not None:
                changed.append(
                    Transition(
                        limit.condition,
                        limit.limit,
                        nan,
                        Standing.OVER,
                        began=False,
                        value=state.past.newest,
                        series=state.series,
                        unit=state.unit,
                        subject="",
                        since=limit.since,
                        judged=False,
                        changed=limit.active or limit.eased,
                    )
                )
                limit.begin_again()
        state.begin_again(self._step)
        self._run.past[state.name] = state.past

    def _restart(self, state: SignalState, changed: list[Transition]) -> None:
        """Begin again, and forget what computes the signal too."""
        self._begin_again(state, changed)
        self._renew(state)

    def _renew(self, state: SignalState) -> None:
        """Forget what computes a signal, and what is derived from it, of the steps before."""
        for get in state.getters:
            if isinstance(get, Computed):
                get.renew()
        for other in self._states.values():
            if other.origin is state:
                self._renew(other)

    def _judge(self, state: SignalState, value: float, reading: Reading, changed: list[Transition]) -> None:
        past = state.past
        low, high, until, learned = -inf, inf, inf, None
        for limit in state.limits:
            if past.count <= limit.after:
                until = min(until, limit.after + 1)
                continue
            threshold, stays = limit.find(state, past)
            until = min(until, stays)
            if threshold is None:
                continue
            before = limit.threshold
            beyond = value < threshold if limit.below else value > threshold
            if beyond and limit.learning:
                if learned is None:
                    learned = explains(self._run, past, limit.condition.family)
                beyond = not learned
                until = 0
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
            if beyond and not limit.beyond:
                limit.since = self._step
            was, limit.active = limit.active, limit.observe(beyond)
            if limit.active is not was or before != threshold or over:
                changed.append(self._transition(state, limit, value, reading, was, over=over, first=before is None))
        if state.said and not any(limit.active for limit in state.limits):
            state.said.clear()
        state.low, state.high, state.until = low, high, until

    def _transition(
        self,
        state: SignalState,
        limit: LimitState,
        value: float,
        reading: Reading,
        was: bool,
        *,
        over: bool,
        first: bool,
    ) -> Transition:
        """Return the change of a limit, and note the level of the run when it begins."""
        began, ended = limit.active and not was, was and not limit.active
        subject, since = _subject(reading)
        if began:
            self._begin(state, limit)
            state.said.update(reading.subject)
        elif ended:
            limit.eased = limit.limit.severity is not Severity.INFO
            if limit.usual is not None:
                limit.usual.left()
        since = since or limit.since
        return Transition(
            limit.condition,
            limit.limit,
            nan if state.finding else limit.threshold or 0.0,
            Standing.HOLDS if limit.active else Standing.EASED if limit.eased else Standing.OVER,
            began=began,
            value=nan if state.finding else value,
            series=reading.series or state.series,
            unit=state.unit,
            subject=subject,
            since=since,
            changed=began or ended or over or first,
            onset=self._onset(state, limit, since, reading.window or state.window) if began else None,
        )

    def _onset(self, state: SignalState, limit: LimitState, since: int, window: int) -> int:
        """Return the first step in which what begins now, and shows ``since`` a step, may have begun.

        That is when the number left the level that the run had before, less the observations that it is computed from
        (``window``), and within the `horizon`.
        """
        away = limit.usual.away(state.past) if limit.usual is not None else 1
        apart = self._apart(state)
        onset = min(since, self._step - (away - 1) * apart) - (window - 1) * apart
        return max(0, onset, min(since, self._step - self.horizon() + 1))

    def horizon(self) -> int:
        """Return the steps after which no older one is taken for the beginning of something critical.

        These are twice the steps that the slowest condition takes to be certain of what begins at once: what drifts
        takes longer. One number is certain at once; others take the observations that they are computed from, and those
        that a limit wants to be beyond it.
        """
        certain = [
            (limit.limit.lasts.of + state.window - 2) * self._apart(state)
            for state in self._states.values()
            for limit in state.limits
            if limit.limit.severity is Severity.CRITICAL and state.past.count
        ]
        return 2 * max(certain, default=0) + 1

    def _apart(self, state: SignalState) -> int:
        """Return the steps from one observation of a signal to the next."""
        return max(1, round((self._step - state.began) / max(1, state.past.count - 1)))

    def _begin(self, state: SignalState, limit: LimitState) -> None:
        """Note the level before an incident; one that was not over goes on, with the level before it."""
        condition = limit.condition
        if not limit.eased and condition.family not in _NEVER_OVER and limit.limit.severity is not Severity.INFO:
            of = self._states[condition.level] if condition.level else state
            bound = limit.threshold or 0.0 if of is state else of.past.newest
            limit.usual = Usual(of.past, limit.limit.lasts.of + WAKE, bound, limit.below)
        limit.eased = False

    def _is_over(self, limit: LimitState, value: float) -> bool:
        """Return True once what has eased is back at the level that the run had before."""
        of = limit.condition.level
        if limit.usual is None or not limit.usual.is_back(self._states[of].past.newest if of else value):
            return False
        limit.eased, limit.usual = False, None
        return True


_PLAIN = Reading(0.0)


def _subject(reading: Reading) -> tuple[str, int]:
    """Return what a reading is about in a few words, and the step since which that is so, or 0."""
    if not reading.subject:
        return "", 0
    names = [*filter(None, reading.subject)]
    return ", ".join(names[:3]) + (" and more" if names[3:] else ""), min(reading.subject.values())


def _moves(past: Past, limit: float) -> bool:
    """Return True unless the last observations of a positive number are all the same, or nearly so."""
    least = _GOOD_PART * min(past.newest, abs(limit - past.newest))
    if past.count < _FEW or past.high - past.low < least:
        return False
    recent = past.values[-_LAST:]
    return max(recent) - min(recent) >= least


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


class Computed:
    """Holds what computes a derived signal; ``renew`` makes one that knows no past."""

    __slots__ = ("_make", "now")

    def __init__(self, make: Callable[[], Compute]) -> None:
        self._make = make
        self.now = make()

    def renew(self) -> None:
        """Forget the past, if it depends on where the number is read."""
        if not getattr(self._make, "keeps", False):
            self.now = self._make()


Getter = str | Counted | Computed
"""The name of a number that is used as it is, what is read at a tensor, or what computes it."""


class Usual:
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

    def __init__(self, condition: Condition, limit: Limit, factor: Factor) -> None:
        self.condition = condition
        self.limit = limit
        self.below = condition.below
        self.after = condition.detector.after
        drifts = limit.learning or (condition.detector.relative and condition.family in LEARNED)
        self.learning = drifts and factor == limit.value
        """True if learning may explain what is beyond it: never for a number that the user has set."""
        self._factor, self._detector = factor, condition.detector
        self._relative, self._settles = condition.detector.relative, condition.detector.settles
        self._every = condition.detector.every
        self.window: deque[bool] = deque(maxlen=limit.lasts.of)
        self.beyond = 0
        self.active = self.eased = False
        self.usual: Usual | None = None
        """The level of the run before the incident that is not over; None if none is, or it never will be."""
        self.since = 0
        self.threshold: float | None = None
        """The limit in force; None before it was judged."""
        self._known: float | None = None
        self._until = 0.0

    def find(self, state: SignalState, past: Past) -> tuple[float | None, float]:
        """Return the limit in force, and the number of observations with which it may be another one.

        It is None if the variant of the signal has none, or the past is too short.
        """
        if past.count < self._until:
            return self._known, self._until
        number = _pick(self._factor, state.variant)
        own = self._detector.measure(past) if number is not None else None
        if number is None:
            self._known, self._until = None, inf
        elif own is None:
            self._known, self._until = None, past.count + 1
        else:
            self._known = number * own
            if not self.below and self._relative:
                self._known = max(self._known, _pick(self._detector.floor, state.variant) or 0.0)
            self._until = inf if self._settles else past.count + self._every
        return self._known, self._until

    def begin_again(self) -> None:
        """Forget what was observed and measured at another source."""
        self.window.clear()
        self.beyond = 0
        self.active = self.eased = False
        self.usual = None
        self.threshold = self._known = None
        self._until = 0.0

    def observe(self, beyond: bool) -> bool:
        """Add one observation, and return True if the condition holds."""
        window = self.window
        if len(window) == window.maxlen:
            self.beyond -= window[0]
        window.append(beyond)
        self.beyond += beyond
        return self.beyond >= self.limit.lasts.enough


def _pick(value: Factor, variant: str) -> float | None:
    return value.get(variant) if isinstance(value, Mapping) else value


class SignalState:
    """A signal of a run: its sources, its past, and the limits on it."""

    def __init__(self, signal: Signal, algorithm: str, makers: Makers, origin: SignalState | None) -> None:
        self.name, self.unit, self.window = signal.name, signal.unit, signal.window
        self.began = 0
        """The step of the first observation of its past."""
        self.gauge = Series(_SIGNAL, (signal.name,))
        self.origin = origin
        """The signal that this one is derived from."""
        self.sources = [source for source in signal.sources if not source.algorithms or algorithm in source.algorithms]
        self.getters = [getter(source, makers) for source in self.sources]
        self.get: Getter | None = None
        """The getter that it was read with last; None before it was read."""
        self.tried = self.getters
        """The getters of the source that was read last and of all better ones."""
        self.plain: str | None = None
        """The number that is all that is tried; None if there is more to it."""
        self.places = self.origin_places = 0
        """The number of sources that this signal, and its origin, had so far."""
        self.series = self.variant = ""
        self.past = Past()
        self.limits: list[LimitState] = []
        self.low, self.high = inf, -inf
        """The range in which a value is within all limits, as all were lately."""
        self.until: float = 0
        """The number of observations with which one of the limits may change."""
        self.said: set[str] = set()
        """What it is about has been reported, as long as a limit holds."""
        self.finding = False
        """True if its number says nothing: something was found, or not."""

    def read(self, view: View, run: Context) -> tuple[Getter, float, Reading | None] | None:
        """Return the number of the step, where it was read, and what is to be said with it; None without a number."""
        for get in self.tried:
            reading = None
            if type(get) is str:
                value = view.numbers.get(get)
            elif type(get) is Counted:
                value = get.of(counted) if (counted := view.counted.get(get.series)) is not None else None
            else:
                got: Any = get.now(view, run)  # type: ignore[union-attr]
                value = got
                if type(got) is Reading:
                    value, reading = got.value, got
                elif got is not None and type(got) is not float:
                    value, reading = float(len(got)), Reading(0.0, subject=got)
            if value is not None and value - value == 0.0:  # finite
                return get, value, reading
        return None

    def has_news(self, reading: Reading) -> bool:
        """Return True if a finding that holds is about something that it was not about before."""
        return bool(self.said) and self.finding and not self.said.issuperset(reading.subject)

    def say_again(self) -> None:
        """Let the limits begin again, if they are still crossed: what is wrong now is worse than what was said."""
        self.until = 0
        for limit in self.limits:
            limit.window.clear()
            limit.beyond, limit.active = 0, False

    def begin_again(self, step: int) -> None:
        """Forget the past."""
        self.past = Past()
        self.until, self.began = 0, step
        self.said.clear()


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


def getter(source: Source, makers: Makers) -> Getter:
    """Return the getter of ``source``; it gives None or NaN if the step does not have it."""
    if source.read is Read.DERIVED:
        return Computed(makers[source.series])
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
