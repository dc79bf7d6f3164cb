"""Watches a run: passes the data of each step, and what was counted between steps, to the judge; knows its pace.

Below the watch stand the checkpoints that it finds good, the repeated numbers that it leaves out, and the turns of
steps: one whose counts are still on their way from a GPU waits for them, the trainer does not. So a step is judged once
with all that is of it, and no signal changes its source because its tensor came late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import pairwise
from math import inf, isfinite, nan
from statistics import median
from typing import NamedTuple

from rlexporter.conditions import declare
from rlexporter.conditions.causes import FATAL, place
from rlexporter.conditions.incidents import Incidents, Mark
from rlexporter.conditions.judge import Judge, Thresholds
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS, SIGNALS
from rlexporter.conditions.view import ASIDE, LineNumbers, View
from rlexporter.model.checkpoint import GoodCheckpoints
from rlexporter.model.condition import Condition, Limit, Severity
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Incident, Key, Transition
from rlexporter.model.metric import Group, Series
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.model.step import RunFacts, StepUpdate

STALLED = ("run_stalled", "")
"""The key of the minimum among the thresholds of a run."""
MINIMUM = 600.0
"""The minimum in seconds. Source: prime-rl calls 600 s without a step stuck, miles 30 minutes or 6 medians."""
TIMES = 10.0
FIRST = 3.0
"""The limit before the first step, in multiples of the minimum: models are loaded and compiled then."""
UNMEASURED = 6.0
"""The limit for an evaluation or a checkpoint that was never measured, in multiples of the minimum."""


class Patience:
    """Learns the pace of one run. ``minimum``: seconds that are always allowed."""

    def __init__(self, minimum: float = MINIMUM) -> None:
        self._minimum = minimum
        self._pace = FIRST * minimum
        self._steps: deque[float] = deque(maxlen=50)
        self._aside: dict[str, deque[float]] = {name: deque(maxlen=10) for name in ASIDE}

    def step(self, seconds: float) -> None:
        """Note that a step took ``seconds``."""
        self._steps.append(seconds)
        slow = TIMES * max(self._steps) > self._minimum  # cheaper than a median, and mostly all
        self._pace = max(self._minimum, TIMES * median(self._steps)) if slow else self._minimum

    def phase(self, name: str, seconds: float) -> None:
        """Note that the phase ``name`` took ``seconds``."""
        if name in self._aside:
            self._aside[name].append(seconds)

    def limit(self, phase: str = "") -> float:
        """Return the seconds without a step after which the run counts as hung while ``phase`` is under way."""
        if not self._steps or phase not in self._aside:
            return self._pace
        known = self._aside[phase]
        return max(self._pace, TIMES * median(known) if known else UNMEASURED * self._minimum)


class Verdict(NamedTuple):
    """The changes of one step."""

    transitions: Sequence[Transition]
    marks: Sequence[Mark]
    """The limits that are symptoms of another since then, or no more."""
    checkpoints: GoodCheckpoints
    incidents: Sequence[Incident]
    """All that has gone wrong in the run so far, in the order in which it is told."""
    values: Mapping[Series, float]
    """The numbers that were compared with limits: gauges of the signals."""
    nearest: tuple[str, float] | None
    """The signal nearest to a limit of an alert, and its share of that limit; None where none comes near one."""
    was_nearest: str
    """The signal that was nearest before and is so no more; empty if there is none."""

    @property
    def critical(self) -> bool:
        """Return True if a critical limit of a condition began."""
        changes = self.transitions
        return bool(changes) and any(each.began and each.limit.severity is Severity.CRITICAL for each in changes)


class Watch:
    """Watches one run step by step. ``stalled``: seconds without a step that are always allowed."""

    def __init__(self, judge: Judge, stalled: float | None = None) -> None:
        self._judge = judge
        self._stalled = stalled or MINIMUM
        self._patience = Patience(self._stalled)
        self._anomalies = AnomalyCounts()
        self._seen: dict[Series, Histogram] = {}
        self._step: int | None = None
        self._span = 1
        self._resumed = False
        self._time: float | None = None
        self._stepped: float | None = None
        self._aside: float | None = None
        self._paused = False
        self._incidents = Incidents()
        self._repeats = Repeats()
        self._nearest = ""
        self.checkpoints = Checkpoints(None, judge.horizon)
        self.first: dict[Key, tuple[int, Transition]] = {}
        """The step in which each condition and severity first began, and the transition."""
        self.causes: dict[Key, Key | None] = {}
        """The cause of each of them when it first began; None for one that is no symptom."""
        self.alone: dict[Key, int] = {}
        """The step from which a symptom was none any more, or had begun again as none."""

    def begin(self, facts: RunFacts) -> None:
        """Begin to watch a run, and forget an earlier one."""
        self._judge.begin(facts)
        self._step = self._time = self._stepped = self._aside = None
        self._paused = False
        self._span, self._resumed = 1, facts.resumed
        self._patience = Patience(self._stalled)
        self._incidents = Incidents()
        self._repeats = Repeats()
        self._nearest = ""
        self.checkpoints = Checkpoints(facts.step or None, self._judge.horizon)

    @property
    def limits(self) -> Sequence[tuple[Condition, Limit]]:
        """Return the limits that this run is judged by, each with its condition."""
        return self._judge.limits

    def stall_after(self, phase: str) -> float:
        """Return the seconds without a step after which the run counts as hung in ``phase`` (empty: no phase)."""
        return self._patience.limit(phase)

    def note(self, anomalies: AnomalyCounts, seen: Mapping[Series, Histogram], *, of: int | None = None) -> None:
        """Take what was counted between two steps; it belongs to the next step that is judged.

        ``of``: the step in which it was counted, if it came late.
        """
        if of is not None and (seen or anomalies):
            self.checkpoints.late(of)
        for name, count in anomalies.nonfinite.items():
            self._anomalies.nonfinite[name] += count
        for name, count in anomalies.undefined.items():
            self._anomalies.undefined[name] += count
        for series, counted in seen.items():
            have = self._seen.get(series)
            self._seen[series] = have + counted if have else counted

    @property
    def pending(self) -> bool:
        """Return True if something was counted since the last step that was judged."""
        return bool(self._seen or self._anomalies)

    def pause(self, now: float) -> None:
        """Leave the time until ``now`` out of the next step: an evaluation took it."""
        self._time, self._paused = now, True

    def look(
        self,
        anomalies: AnomalyCounts,
        line: LineNumbers,
        update: StepUpdate | None,
        step: int,
        now: float,
        *,
        timed: bool = True,
    ) -> Verdict:
        """Judge a log line and the step update that belongs to it; return what has changed.

        ``now``: seconds since the epoch; ``timed``: False if nobody knows when the line was logged.
        """
        self.note(anomalies, update.seen if update is not None else {})
        at = now if timed else nan
        advanced = step != self._step
        gap = update.duration if update is not None and update.duration is not None else _between(self._time, at)
        phases = update.phases if update is not None else {}
        stalled = self._stall(at, phases) if advanced else None
        if advanced and gap is not None:
            self._patience.step(gap)
        for phase, seconds in phases.items():
            self._patience.phase(phase, seconds)
        if advanced:
            before = self._step  # without one, a run that goes on here has steps that were not seen
            self._span = max(1, step - before) if before is not None else 1 if self._resumed else max(1, step)
        if update is None:  # nobody but the log tells what is new
            line = self._repeats.new(line)
        view = View(
            *(step, advanced, gap, self._span, self._anomalies, line.numbers, line.functions, self._seen),
            phases=phases,
            stalled=stalled,
        )
        self._anomalies, self._seen = AnomalyCounts(), {}
        self._step, self._time = step, at
        return self._verdict(view, now)

    def evaluated(self, now: float) -> Verdict | None:
        """Judge what an evaluation showed after the last step, with that step; None if it showed nothing.

        ``now``: seconds since the epoch.
        """
        seen = {series: counted for series, counted in self._seen.items() if series.metric.group is Group.EVALUATION}
        if not seen or self._step is None:
            return None
        for series in seen:
            del self._seen[series]
        return self._verdict(View(self._step, False, None, self._span, AnomalyCounts(), seen=seen), now)

    def aside_over(self, now: float) -> None:
        """Note that an evaluation or a checkpoint is done: what hangs from ``now`` on hangs elsewhere."""
        self._aside = now

    def cut_short(self, now: float, phase: str) -> Verdict | None:
        """Judge the time since the last step of a run that is ended from outside; None if it did not count as hung.

        ``phase``: what was under way, if it is known.
        """
        since = self._stepped if self._aside is None or self._stepped is None else max(self._stepped, self._aside)
        seconds, self._stepped = _between(since, now), now
        if self._step is None or seconds is None or seconds <= self._patience.limit(phase):
            return None
        view = View(self._step + 1, False, None, 1, AnomalyCounts())  # it hung in a step that will not end
        view.stalled = seconds, phase
        return self._verdict(view, now)

    def _verdict(self, view: View, now: float) -> Verdict:
        transitions = self._judge.step(view)
        if len(transitions) > 1:  # causes first
            transitions.sort(key=lambda transition: place(transition.condition, transition.limit))
        marks = self._incidents.see(transitions, view, now)
        if transitions or marks:
            self._note_first(transitions, marks, view.step)
        self.checkpoints.see(self._incidents.critical, view)
        nearest, before = self._judge.nearest(), self._nearest
        self._nearest = nearest[0] if nearest else ""
        return Verdict(
            *(transitions, marks, self.checkpoints.good, self._incidents.all, self._judge.values, nearest),
            was_nearest=before if before != self._nearest else "",
        )

    def _note_first(self, transitions: Sequence[Transition], marks: Sequence[Mark], step: int) -> None:
        """Note what began for the first time, and because of what."""
        for transition in transitions:
            if transition.began:
                self.first.setdefault(transition.key, (step, transition))
        for key, cause in marks:
            if cause is not None and self.first[key][0] == step:
                self.causes[key] = cause
            elif self.causes.setdefault(key, cause) is not None and cause is None:
                self.alone.setdefault(key, step)

    def of_failure(self) -> Mark:
        """Return what explains that the run fails now."""
        return self._incidents.of_failure()

    def heard(self, signal: str) -> bool:
        """Return True if ``signal`` has ever had a value."""
        return self._judge.past(signal).count > 0

    def _stall(self, now: float, phases: Mapping[str, float]) -> tuple[float, str] | None:
        """Return the seconds since the last step if it counted as hung, and the longest of the ``phases`` meanwhile."""
        seconds, self._stepped = now - (nan if self._stepped is None else self._stepped), now
        paused, self._paused = self._paused, False
        if not self._stalled < seconds < inf:
            return None
        aside = paused or not ASIDE.isdisjoint(phases)
        if seconds <= self._patience.limit("eval" if aside else ""):
            return None
        return seconds, max(phases, key=phases.__getitem__, default="eval" if paused else "")


def watch(thresholds: Thresholds | None = None) -> Watch:
    """Make a watch for one run. ``thresholds``: limits that replace those of the table."""
    stalled = (thresholds or {}).get(STALLED)
    judge = Judge(CONDITIONS, SIGNALS, declare.COMPUTED, thresholds)
    return Watch(judge, stalled if isinstance(stalled, float) else None)


def _between(before: float | None, now: float) -> float | None:
    """Return the seconds between two times; None where one is not known."""
    gap = nan if before is None else now - before
    return gap if isfinite(gap) else None


# Which checkpoints are good: older than the beginning of what is critical, on the clock of steps

_KEPT = 64
"""The good checkpoints that are remembered, in case that some are taken back."""


class Checkpoints:
    """Follows the checkpoints of one run.

    A checkpoint is good if it is older than all that is critical. A condition is taken to have begun in the first step
    of the numbers that show it, or that show its cause. A checkpoint is judged with the first verdict on a later step,
    or at the end of the run, since another line may tell more of its own step; and it is taken back where something
    turns out to have begun by then. ``resumed``: the step of the checkpoint that the run continues; what the first
    verdict finds is taken to have come with it. ``horizon``: returns that of `GoodCheckpoints`. Only the thread that
    holds the lock of the feed may call a method; any thread may read `good`.
    """

    def __init__(self, resumed: int | None = None, horizon: Callable[[], int] = lambda: 0) -> None:
        self._horizon = horizon
        self._undecided: list[int] = []
        self._late = resumed
        """The first step that the next verdict is also on."""
        self._since: dict[Key, int] = {}
        """The first step of each critical condition that holds, or leaves the weights in doubt."""
        self.good = GoodCheckpoints(() if resumed is None else (resumed,))

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""
        self._undecided = [*self._undecided[-_KEPT:], step]

    def late(self, step: int) -> None:
        """Note that the next verdict is also on what was counted in ``step``."""
        self._late = step if self._late is None else min(self._late, step)

    def see(self, critical: Mapping[Key, int], view: View) -> None:
        """Take the verdict on a step.

        ``critical``: the conditions that hold, each with the first step in which it may have begun; ``view``: what the
        verdict was on.
        """
        step = view.step
        if critical or self._since or self._undecided or self.good.doubtful is not None:  # in few steps
            first = step if self._late is None else min(step, self._late)
            for key, since in critical.items():
                self._since[key] = min(since, self._since.get(key, first))
            self._decide(step)
            if self._since:
                self._forget(critical, view.counted.get("rl_weight_norm"))
        if self._late is not None and step > self._late:
            self._late = None

    def decide(self) -> None:
        """Judge the newest checkpoints with what is known now."""
        self._decide(max(self._undecided, default=0) + 1)

    def _decide(self, step: int) -> None:
        """Judge the checkpoints before ``step``; take back what something critical may have spoiled."""
        doubtful = min(self._since.values(), default=None)
        new = [saved for saved in self._undecided if saved < step]
        if not new and doubtful == self.good.doubtful:  # nearly every step
            return
        self._undecided = [saved for saved in self._undecided if saved >= step]
        steps = [each for each in (*self.good.steps, *new) if doubtful is None or each < doubtful]
        horizon = self._horizon() if new else self.good.horizon
        self.good = GoodCheckpoints(tuple(steps[-_KEPT:]), doubtful, horizon)

    def _forget(self, critical: Mapping[Key, int], weights: Histogram | None) -> None:
        """Forget what is over; NaN only once the weights have been seen to be numbers: a trainer may hide them."""
        healthy = weights is not None and weights.count > 0 and not weights.nonfinite
        for key in self._since.keys() - critical.keys():
            if healthy or CONDITION_NAMED[key[0]].family is not FATAL:
                del self._since[key]


# Numbers that repeat those of the line before: a log with a line a conversation, or a line a PPO epoch

_TOGETHER = 3
"""The numbers that must all be what they were in the line before, for it to be the same observation again."""
_IN_A_ROW = 64
"""The lines in a row that may repeat one. After that a run that stands still is what is observed."""
_OF_UPDATES = (
    *("rl_value_loss", "rl_policy_loss", "rl_total_loss", "rl_loss", "rl_grad_norm", "rl_policy_approxkl"),
    *("rl_entropy_per_token", "rl_kl_per_token", "rl_kl_per_sequence"),
)
"""The numbers that are nearly the same in several updates on one batch."""
_WINDOW = 128
_EVERY = 64
"""The lines after which batches are looked for anew."""
_PERIODS = range(2, 9)
_FEWEST = 5
"""The batches from which on they can be told."""
_SHARE = 0.7
"""The share of batches that must begin with a change larger than all around it, in two numbers: by chance a third."""
_LASTING = 0.5
"""The share, in one number, from which on they still do."""


class Repeats:
    """Drops from the lines of one log what is no new observation. It remembers 128 lines."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._varied: set[str] = set()
        self._in_a_row = 0
        self._lines = 0
        """The number of lines of a trainer with a critic: PPO alone has several epochs, one a line."""
        self._window: deque[Mapping[str, float]] = deque(maxlen=_WINDOW)
        self._batch: tuple[int, int, frozenset[str]] = (1, 0, frozenset())
        """The lines of a batch, the place of its first, and the numbers that repeat in the others."""

    def new(self, line: LineNumbers) -> LineNumbers:
        """Return ``line`` without the numbers that repeat the line before."""
        numbers, before = line.numbers, self._before
        self._before = numbers
        same = [name for name, value in numbers.items() if before.get(name) == value]
        varied = self._varied
        if not numbers.keys() <= varied:  # after a few lines hardly any number has never changed
            varied.update((numbers.keys() & before.keys()).difference(same))
        telling = varied.intersection(same)
        if len(telling) >= _TOGETHER:
            # Whole numbers, such as a share of 0, are often the same by chance; others are, one at a time.
            telling = {name for name in telling if not numbers[name].is_integer()}
        repeated = len(telling) >= _TOGETHER and 2 * len(telling) >= len(numbers.keys() & varied)
        self._in_a_row = self._in_a_row + 1 if repeated else 0
        dropped: Set[str] = frozenset()
        if 0 < self._in_a_row <= _IN_A_ROW:
            dropped = {*same}
        elif "rl_value_loss" in numbers:
            dropped = self._of_batch(numbers)
        if not dropped:
            return line
        kept = {name: value for name, value in numbers.items() if name not in dropped}
        return LineNumbers(kept, line.functions)

    def _of_batch(self, numbers: Mapping[str, float]) -> frozenset[str]:
        """Return what of ``numbers``, of a trainer with a critic, the first update on this batch has shown."""
        updates = {name: numbers[name] for name in _OF_UPDATES if name in numbers}
        self._window.append(updates)
        self._lines += 1
        if self._lines % _EVERY == 0:
            self._batch = self._told()
        size, first, names = self._batch
        return frozenset() if self._lines % size == first else names

    def _told(self) -> tuple[int, int, frozenset[str]]:
        """Return how the lines of the window make up batches; as before where that still is so, none if they do not."""
        begun = self._lines - len(self._window) + 1
        changes = {
            name: [abs(after.get(name, 0.0) - before.get(name, 0.0)) for before, after in pairwise(self._window)]
            for name in self._window[-1]
        }

        def begin(size: int, first: int, share: float) -> frozenset[str]:
            starts = [place for place in range(len(self._window) - 1) if (begun + place + 1) % size == first]
            return frozenset(name for name, change in changes.items() if _begins(change, starts, size) >= share)

        if self._batch[2] and begin(*self._batch[:2], _LASTING) & self._batch[2]:
            return self._batch
        for size in _PERIODS:
            for first in range(size):
                names = begin(size, first, _SHARE)
                if len(names) > 1:
                    return size, first, names
        return 1, 0, frozenset()


def _begins(changes: list[float], starts: Sequence[int], size: int) -> float:
    """Return the share of ``starts`` at which the change is larger than all others less than ``size`` lines away."""
    whole = [place for place in starts if place >= size - 1 and place + size <= len(changes)]
    around = [
        (changes[place - size + 1 : place] + changes[place + 1 : place + size], changes[place]) for place in whole
    ]
    return sum(change > max(others) for others, change in around) / len(whole) if len(whole) >= _FEWEST else 0.0


# Steps in their turn: what waits for counts from a GPU, and what came after it

_MOST = 16
"""The most that waits: after so many lines of one step they are judged as they are."""


class Turn(NamedTuple):
    """A log line and the step update that belongs to it."""

    anomalies: AnomalyCounts
    line: LineNumbers
    update: StepUpdate | None
    step: int
    time: float
    """Seconds since the epoch."""
    timed: bool = True
    """False if the time is not that of the line."""


class Judged(NamedTuple):
    """The verdict on a turn."""

    verdict: Verdict
    step: int
    time: float


class Turns:
    """What one run is judged by, in the order in which it came. Only the thread that holds the lock of the feed calls.

    A turn that waits is judged when its counts have come, or else before the next step, or at the end.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._waiting: list[Callable[[], Judged | None]] = []
        self._step = 0
        """The step that waits."""

    def __bool__(self) -> bool:
        """Return True if something waits."""
        return bool(self._waiting)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting = []

    def take(self, turn: Turn, *, awaits: bool) -> list[Judged]:
        """Judge what is due with this ``turn``; it waits itself if it ``awaits`` counts, or others of its step wait."""
        over = self._waiting and (turn.step != self._step or len(self._waiting) >= _MOST)
        due = self.due() if over else []
        if awaits or self._waiting:
            self._step = turn.step
            self._waiting.append(partial(self._judge, turn))
        else:
            due.append(self._judge(turn))
        return due

    def evaluation(self, turn: Turn) -> list[Judged]:
        """Judge what the evaluation of this ``turn`` showed, and leave its time out of the next step."""

        def judge() -> Judged | None:
            verdict = self._watch.evaluated(turn.time)
            self._watch.pause(turn.time if turn.timed else nan)
            return Judged(verdict, turn.step, turn.time) if verdict else None

        if self._waiting:
            self._waiting.append(judge)
            return []
        judged = judge()
        return [judged] if judged else []

    def note(
        self, anomalies: AnomalyCounts, seen: Mapping[Series, Histogram], of: int, *, from_device: bool = False
    ) -> None:
        """Take what was counted in the step ``of``, or after it; what comes from a device is what a turn waits for."""
        if from_device and self._waiting and of <= self._step:
            self._watch.note(anomalies, seen, of=None if of == self._step else of)
        else:
            self._in_turn(partial(self._watch.note, anomalies, seen, of=of))

    def due(self) -> list[Judged]:
        """Judge what waits."""
        waiting, self._waiting = self._waiting, []  # at once, as a signal handler may come here too
        return [judged for judge in waiting if (judged := judge()) is not None]

    def last(self, step: int, now: float) -> list[Judged]:
        """Judge what waits and what came after it, as no other step will come."""
        due = self.due()
        if self._watch.pending:
            due.append(self._judge(Turn(AnomalyCounts(), LineNumbers(), None, step, now)))
        return due

    def cut_short(self, step: int, now: float, phase: str) -> list[Judged]:
        """Judge what waits, and the time since the last step, as `Watch.cut_short` does."""
        due = self.due()
        verdict = self._watch.cut_short(now, phase)
        return due if verdict is None else [*due, Judged(verdict, step + 1, now)]

    def _judge(self, turn: Turn) -> Judged:
        anomalies, line, update, step, time, timed = turn
        return Judged(self._watch.look(anomalies, line, update, step, time, timed=timed), step, time)

    def _in_turn(self, act: Callable[[], None]) -> None:
        if self._waiting:
            self._waiting.append(act)
        else:
            act()
