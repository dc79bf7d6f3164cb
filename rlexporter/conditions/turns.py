"""Judges steps in their turn: one whose counts are still on their way from a GPU waits for them, the trainer does not.

So a step is judged once with all that is of it, and no signal changes its source because its tensor came late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import nan
from typing import NamedTuple

from rlexporter.conditions.view import LineNumbers
from rlexporter.conditions.watch import Verdict, Watch
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import AnomalyCounts
from rlexporter.model.step import StepUpdate

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
    """What one run is judged by, in the order in which it came. Only the thread that holds the lock of the store calls.

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
