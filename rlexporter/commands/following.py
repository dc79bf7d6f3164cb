"""Puts what a growing log says into a run: where it begins, begins again, and ends, and when each line was written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite, nan

from rlexporter.commands import playback
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.recording import Event, run_facts
from rlexporter.recording.stream import Stream
from rlexporter.recording.writers import is_training
from rlexporter.run.run import Run

SILENCE_SECONDS = 60.0
"""How long no log line comes after an exception, or after the last planned step, until the run counts as ended."""
_EARLIEST = 1e9
"""Earliest time of a calendar: smaller numbers are seconds since something else, and no times."""


class Following:
    """Feeds ``run`` from ``stream``. One thread calls everything.

    A line is from the time that it says. Of one that says none, nobody knows it while the past is read, so that no pace
    is learned from it; later it is the time at which it is read.
    """

    def __init__(self, run: Run, stream: Stream) -> None:
        self.lines = 0
        """The number of log lines so far."""
        self.past = True
        """True while what was there before is read."""
        self._run = run
        self._stream = stream
        self._attempt = 1
        self._step: int | None = None
        self._begun: RunFacts | None = None
        """The facts that the run was begun with."""
        self._known: object = None
        """What the stream knew of the run at the last line."""
        self._guessed = False
        """True if the end of the run was concluded from silence."""
        self._quiet_since = nan
        self._time: float | None = None
        run.clock = self._now

    def take(self, events: Iterable[Event], written: float) -> None:
        """Take the next ``events``. ``written``: when the log was written last, in seconds since the epoch."""
        for event in events:
            now = time.time()
            dated = isfinite(event.time) and event.time >= _EARLIEST
            self._time = min(event.time, now) if dated else min(written, now) if self.past else now
            try:
                self._take(event, timed=dated or not self.past)
            finally:
                self._time = None
            self._quiet_since = min(written, now) if self.past else now

    def look_for_an_end(self) -> None:
        """End the run if something said that it ends, and nothing was logged since for a while."""
        run = self._run
        if run.state is not RunState.RUNNING or not time.time() - self._quiet_since >= SILENCE_SECONDS:
            return
        if said := self._said():
            self._guessed = True
            run.enter(*said)

    def end(self) -> None:
        """Note that nothing more can come: the run has ended, and if nothing says how, before its last step or not."""
        run = self._run
        if run.state is not RunState.RUNNING:
            return
        cut_short = self._stream.planned is not None and self._step is not None
        run.enter(*(self._said() or (RunState.STOPPED if cut_short else RunState.FINISHED, "")))

    def _said(self) -> tuple[RunState, str] | None:
        """Return how the log says that the run ended, and the exception's name; None if the log does not say it."""
        ending, planned = self._stream.ending, self._stream.planned
        if ending is not None and ending.state is not None:
            return ending.state, ending.exception
        reached = planned is not None and self._step is not None and self._step >= planned
        return (RunState.FINISHED, "") if reached else None

    def _now(self) -> float:
        return time.time() if self._time is None else self._time

    def _take(self, event: Event, *, timed: bool) -> None:
        run = self._run
        if event.state is RunState.RUNNING:
            self._begin(self._stream.facts)
        elif event.state is not None:
            if event.state.over and not run.state.over:
                run.enter(event.state, event.exception)
        else:
            training = event.update is not None or (event.logs is not None and is_training(event.logs))
            self._place(event, training=training)
            with run.errors.guard("log"):
                playback.feed(run.store, event, timed=timed)
            self.lines += event.logs is not None
            if training:
                self._step = event.step
            if event.logs is not None and "train_runtime" in event.logs and not self._stream.recorded:
                self._guessed = False
                run.enter(RunState.FINISHED)

    def _place(self, event: Event, *, training: bool) -> None:
        """Begin the run if ``event`` is its first, or the first of another attempt; learn what was not known before."""
        run, known = self._run, self._stream.known
        back = self._step is not None and event.step < self._step
        if self._begun is None:
            self._begin(self._stream.facts)
        elif training and not self._stream.recorded and (back or (run.state.over and not self._guessed)):
            self._attempt += back or run.state is not RunState.FINISHED
            self._begin_again(event, self._stream.facts)
        elif training and run.state.over and self._guessed:
            self._guessed = False
            run.enter(RunState.RUNNING)  # the exception was caught, or there were more steps than planned
        elif known != self._known:
            self._learn(self._stream.facts)
        self._known = known

    def _begin(self, facts: RunFacts) -> None:
        self._begun, self._step, self._guessed = facts, None, False
        playback.begin(self._run, replace(facts, run_name=self._stream.name))
        now = self._now()
        self._run.store.change(lambda builder: builder.set("rl_run_start_timestamp_seconds", now))

    def _begin_again(self, event: Event, facts: RunFacts) -> None:
        """Begin another attempt: one that resumes a checkpoint counts no tokens and episodes again."""
        resumed = run_facts.is_trimmed([event.step, event.step + self._stream.interval])
        totals = _numbers(event.logs or {}) if resumed else {}
        info = {**facts.info, "attempt": str(self._attempt)}
        self._begin(replace(facts, info=info, step=None, trimmed=resumed, totals=totals))

    def _learn(self, facts: RunFacts) -> None:
        """Take over what the first lines did not tell: the framework, the algorithm, how many steps are planned."""
        assert self._begun is not None
        before, planned = self._begun, facts.steps_planned
        self._begun = replace(facts, info=before.info)
        if _judged_as(facts) != _judged_as(before):
            info = {"torch": "", **facts.info, **before.info}
            self._run.prepare(replace(facts, info=info, run_name=self._stream.name, step=None, totals={}))
        elif planned is not None and planned != before.steps_planned:
            self._run.store.change(lambda builder: builder.set("rl_steps_planned", planned))


def _judged_as(facts: RunFacts) -> tuple[str, ...]:
    return facts.algorithm, facts.framework, facts.judged_as


def _numbers(logs: Mapping[str, object]) -> dict[str, float]:
    return {key: float(value) for key, value in logs.items() if isinstance(value, (int, float)) and isfinite(value)}
