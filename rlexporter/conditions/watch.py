"""Watches a run: passes the data of each step, and what was counted between steps, to the judge; knows its pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from statistics import median
from typing import NamedTuple

from rlexporter.catalog.causes import place
from rlexporter.conditions.checkpoints import Checkpoints
from rlexporter.conditions.incidents import Incidents, Mark
from rlexporter.conditions.judge import Judge
from rlexporter.conditions.repeats import Repeats
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
        return any(change.began and change.limit.severity is Severity.CRITICAL for change in self.transitions)


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
        self._anomalies.add(anomalies)
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
        seconds, self._stepped = _between(self._stepped, now), now
        paused, self._paused = self._paused, False
        if seconds is None or seconds <= self._stalled:
            return None
        aside = paused or not ASIDE.isdisjoint(phases)
        if seconds <= self._patience.limit("eval" if aside else ""):
            return None
        return seconds, max(phases, key=phases.__getitem__, default="eval" if paused else "")


def _between(before: float | None, now: float) -> float | None:
    """Return the seconds between two times; None where one is not known."""
    gap = nan if before is None else now - before
    return gap if isfinite(gap) else None
