"""A run under watch: what each step brings goes to the judge, and so does what comes between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlexporter.conditions.judge import Judge, Transition
from rlexporter.conditions.stall import MINIMUM, Patience
from rlexporter.conditions.view import LineNumbers, View
from rlexporter.model.condition import Condition, Limit
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.model.step import StepUpdate


class Watch:
    """Watches one run, on its step clock. ``stalled``: seconds without a step that are always allowed."""

    def __init__(self, judge: Judge, stalled: float | None = None) -> None:
        self._judge = judge
        self._stalled = stalled or MINIMUM
        self._patience = Patience(self._stalled)
        self._anomalies = AnomalyCounts()
        self._seen: dict[Series, Histogram] = {}
        self._step: int | None = None
        self._time: float | None = None
        self.first: dict[tuple[str, str], tuple[int, Transition]] = {}
        """By condition and severity: the step in which it began for the first time, and how."""

    def begin(self, algorithm: str, *, sequence_level: bool = False, resumed: bool = False) -> None:
        """Let a run begin: nothing of an earlier one counts."""
        self._judge.begin(algorithm, sequence_level=sequence_level, resumed=resumed)
        self._step = self._time = None
        self._patience = Patience(self._stalled)

    @property
    def limits(self) -> Sequence[tuple[Condition, Limit]]:
        """Those that this run is judged by."""
        return self._judge.limits

    def stall_after(self, phase: str) -> float:
        """Return the seconds without a step after which the run hangs, while ``phase`` is under way (empty: none)."""
        return self._patience.limit(phase)

    def note(self, anomalies: AnomalyCounts, seen: Mapping[Series, Histogram]) -> None:
        """What was counted between two steps; it belongs to the next one that is judged."""
        self._anomalies.add(anomalies)
        for series, counted in seen.items():
            have = self._seen.get(series)
            self._seen[series] = have + counted if have else counted

    @property
    def pending(self) -> bool:
        """Whether something was counted since the last step that was judged."""
        return bool(self._seen or self._anomalies)

    def pause(self, now: float) -> None:
        """Something that is no step has taken its time until now: an evaluation."""
        self._time = now

    def look(
        self, anomalies: AnomalyCounts, line: LineNumbers, update: StepUpdate | None, step: int, now: float
    ) -> list[Transition]:
        """Judge a line, and the step update that belongs to it."""
        self.note(anomalies, update.seen if update is not None else {})
        advanced = step != self._step
        gap = update.duration if update is not None and update.duration is not None else self._gap(now)
        if advanced and gap is not None:
            self._patience.step(gap)
        for phase, seconds in update.phases.items() if update is not None else ():
            self._patience.phase(phase, seconds)
        view = View(step, advanced, gap, self._anomalies, line.numbers, line.functions, self._seen, keys=line.keys)
        self._anomalies, self._seen = AnomalyCounts(), {}
        self._step, self._time = step, now
        transitions = self._judge.step(view)
        for transition in transitions:
            if transition.began:
                self.first.setdefault((transition.condition.name, transition.limit.severity.value), (step, transition))
        return transitions

    def heard(self, signal: str) -> bool:
        """Whether a signal has ever come."""
        return self._judge.past(signal).count > 0

    def needs(self, signal: str) -> bool:
        """Whether a condition of this run is judged by a signal."""
        return any(condition.signal == signal for condition, _ in self._judge.limits)

    def _gap(self, now: float) -> float | None:
        return None if self._time is None else now - self._time
