"""Plays the events of a log into a `Run`: decides when it begins, begins again and ends, and dates its lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from rlexporter.atomic_file import write_whole
from rlexporter.config.arguments import Rank
from rlexporter.config.settings import Settings
from rlexporter.feed.feed import Feed
from rlexporter.logs import run_facts
from rlexporter.logs.dialect import is_training
from rlexporter.logs.growing import Stream
from rlexporter.logs.reader import Event, Recording
from rlexporter.logs.saved_state import SavedState
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.run.run import Run

SILENCE_SECONDS = 60.0
"""After an exception or the last planned step, a run without a log line for so long counts as ended."""
_EARLIEST = 1e9
"""The earliest date: smaller numbers are seconds since something else."""
_KILLED = (RunState.FAILED, "Killed")
"""The end of a killed process, which could not name an exception."""


class _Playing:
    """What both players do with ``run``. One thread calls everything."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.time: float | None = None
        """The time that the run sees; None for now."""
        run.clock = self.now

    def now(self) -> float:
        """Return the time that the run sees, in seconds since the epoch."""
        return time.time() if self.time is None else self.time

    def begin(self, facts: RunFacts) -> None:
        """Let the training begin, or begin again with the ``facts`` of another attempt."""
        self.run.prepare(_served(facts))
        self.run.enter(RunState.RUNNING)

    def put(self, event: Event, *, timed: bool | None = None) -> None:
        """Put the content of ``event``, or the end that it tells, into the run. ``timed``: as in `Feed.record`."""
        if event.state is None:
            with self.run.errors.guard("log"):
                feed(self.run.feed, event, timed=isfinite(event.time) if timed is None else timed)
        elif event.state.over and not self.run.state.over:
            self.run.enter(event.state, event.exception)


class Player(_Playing):
    """Plays the events of ``recording``, whose facts are all known before the first event."""

    def __init__(self, run: Run, recording: Recording) -> None:
        super().__init__(run)
        self._recording = recording

    def take(self, event: Event) -> None:
        """Play one ``event``."""
        if event.state is not RunState.RUNNING:
            self.put(event)
        elif self.run.state.over or self.run.feed.snapshot.value("rl_steps_total"):
            self.begin(replace(self._recording.facts, step=None, totals={}))

    def end(self) -> None:
        """End the run after its last event. If its recorder would have written an end, the process was killed."""
        if self.run.state is RunState.RUNNING:
            self.run.enter(*(_KILLED if self._recording.watched else (RunState.FINISHED, "")))


class Follower(_Playing):
    """Plays the events of ``stream``, whose facts are learned as lines arrive.

    Most logs do not say where another attempt begins, nor how the run ended. A step that goes back, or silence, tells.
    """

    def __init__(self, run: Run, stream: Stream) -> None:
        super().__init__(run)
        self.lines = 0
        """The number of log lines so far."""
        self.past = True
        """True while reading what was written before this process started."""
        self._stream = stream
        self._attempt = 1
        self._step: int | None = None
        self._noted: int | None = None
        self._begun: RunFacts | None = None
        """The facts with which the run began."""
        self._known: object = None
        """What the stream knew of the run at the last line."""
        self._guessed = False
        """True if the end of the run was concluded from silence."""
        self._quiet_since = nan

    def begin(self, facts: RunFacts) -> None:
        """Let the training begin, or begin again, at the time that the run sees."""
        self._begun, self._step, self._guessed = facts, None, False
        super().begin(facts)
        now = self.now()
        self.run.feed.change(lambda builder: builder.set("rl_run_start_timestamp_seconds", now))

    def follow(self, events: Iterable[Event], written: float) -> None:
        """Take the next ``events``. ``written``: when the log was last written, in seconds since the epoch.

        An event without a time has an unknown one while the past is read, so that no pace is learned from it; later it
        has the time at which it is read.
        """
        for event in events:
            now = time.time()
            dated = isfinite(event.time) and event.time >= _EARLIEST
            self.time = min(event.time, now) if dated else min(written, now) if self.past else now
            try:
                self._take(event, timed=dated or not self.past)
            finally:
                self.time = None
            self._quiet_since = min(written, now) if self.past else now
            if event.step != self._noted:  # each step is in the curves of the page, however fast they are read
                self._noted = event.step
                self.run.note()

    def look_for_an_end(self) -> None:
        """End the run if the log tells an end, and nothing was logged for a while since."""
        if self.run.state is not RunState.RUNNING or not time.time() - self._quiet_since >= SILENCE_SECONDS:
            return
        if end := self._told_end():
            self._guessed = True
            self.run.enter(*end)

    def end(self) -> None:
        """End the run, since nothing more can come: as the log says, else as stopped if steps were planned."""
        if self.run.state is RunState.RUNNING:
            cut_short = self._stream.dialect.planned is not None and self._step is not None
            self.run.enter(*(self._told_end() or (RunState.STOPPED if cut_short else RunState.FINISHED, "")))

    def _told_end(self) -> tuple[RunState, str] | None:
        """Return how the run ended, and the exception's name, or None if the log does not say."""
        ending, planned = self._stream.ending, self._stream.dialect.planned
        if ending is not None and ending.state is not None:
            return ending.state, ending.exception
        reached = planned is not None and self._step is not None and self._step >= planned
        return (RunState.FINISHED, "") if reached else None

    def _take(self, event: Event, *, timed: bool) -> None:
        if event.state is RunState.RUNNING:
            self.begin(self._stream.facts)
            return
        if event.state is None:
            self._place(event)
        self.put(event, timed=timed)
        if not self._stream.watched and "train_runtime" in (event.logs or ()):
            self._guessed = False
            self.run.enter(RunState.FINISHED)

    def _place(self, event: Event) -> None:
        """Begin the run if ``event`` is its first, or the first of another attempt; else learn new facts from it."""
        run, known = self.run, self._stream.known
        training = event.update is not None or (event.logs is not None and is_training(event.logs))
        back = self._step is not None and event.step < self._step
        if self._begun is None:
            self.begin(self._stream.facts)
        elif training and not self._stream.watched and (back or (run.state.over and not self._guessed)):
            self._attempt += back or run.state is not RunState.FINISHED
            self._begin_again(event)
        elif training and run.state.over and self._guessed:
            self._guessed = False
            run.enter(RunState.RUNNING)  # the exception was caught, or there were more steps than planned
        elif known != self._known:
            self._learn(self._begun)
        self._known = known
        self._step = event.step if training else self._step
        self.lines += event.logs is not None

    def _begin_again(self, event: Event) -> None:
        """Begin another attempt. One that resumes a checkpoint does not count its tokens and episodes again."""
        self._stream.begin_anew(event.logs or ())
        facts, numbers = self._stream.facts, (event.logs or {}).items()
        resumed = run_facts.is_trimmed([event.step, event.step + self._stream.interval])
        totals = {key: float(n) for key, n in numbers if isinstance(n, (int, float)) and isfinite(n)} if resumed else {}
        info = {**facts.info, "attempt": str(self._attempt)}
        self.begin(replace(facts, info=info, step=None, trimmed=resumed, totals=totals))

    def _learn(self, before: RunFacts) -> None:
        """Take over what lines told later than the first: framework, algorithm, or the number of planned steps."""
        facts = self._stream.facts
        planned = facts.steps_planned
        self._begun = replace(facts, info=before.info)
        if _judged_as(facts) != _judged_as(before):
            info = {**facts.info, **before.info}
            self.run.prepare(_served(replace(facts, info=info, step=None, totals={})))
        elif planned is not None and planned != before.steps_planned:
            self.run.feed.change(lambda builder: builder.set("rl_steps_planned", planned))


class Due(NamedTuple):
    """An event of a recording, and when to play it."""

    event: Event
    at: float
    ends_step: bool
    """True for the last event of a step."""


def schedule(recording: Recording) -> tuple[float, list[Due]]:
    """Return when the run begins, and its events with their times, which never decrease.

    Without times a step takes a second; a run without dates ends now.
    """
    events = recording.events
    known = [at for at in (recording.began, *(event.time for event in events)) if isfinite(at)]
    timed = any(isfinite(event.time) for event in events)
    began = now = known[0] if timed else 0.0
    times, step = [], None
    for event in events:
        if timed:
            now = max(now, event.time) if isfinite(event.time) else now
        elif event.state is None:
            now += 1.0 if step is None or event.step < step else event.step - step
            step = event.step
        times.append(now)
    shift = time.time() - now if now < _EARLIEST else 0.0
    ends = [event.state is None for event in events]
    for i, (event, after) in enumerate(pairwise(events)):
        ends[i] &= after.state is not None or after.step != event.step
    return began + shift, [Due(e, at + shift, last) for e, at, last in zip(events, times, ends, strict=True)]


def begun(recording: Recording, given: Mapping[str, Any] | None = None) -> tuple[Player, list[Due]]:
    """Return the player of a run of its own, which has begun when the recorded run did, and what it is to play.

    ``given``: settings of `Settings` that are not the recorded process's own, by name.
    """
    began, dues = schedule(recording)
    player = Player(Run(replace(Settings.load(settings(recording)), **(given or {})), clock=lambda: began), recording)
    player.time = began
    player.begin(recording.facts)
    return player, dues


def played(recording: Recording, given: Mapping[str, Any], see: Callable[[Run], None] = lambda run: None) -> Player:
    """Play ``recording`` at once, by its own clock; ``see`` is called after each of its steps. ``given``: as above."""
    player, dues = begun(recording, given)
    for event, player.time, ends_step in dues:
        player.take(event)
        if ends_step:
            see(player.run)
    player.end()
    return player


def settings(recording: Recording) -> dict[str, Any]:
    """Return the settings of the recorded process; the environment of this process is ignored."""
    return {"run": recording.run, "algorithm": recording.facts.algorithm, "rank": Rank(0, world_size=1)}


def feed(into: Feed, event: Event, *, timed: bool = True) -> None:
    """Put the content of a recorded ``event`` into ``into``; ``timed`` as in `Feed.record`."""
    for update in (event.part, event.update):
        for series in update.seen if update else ():
            into.tap(series.metric)
    if event.part is not None:
        into.absorb(event.part, last=event.last)
    elif event.update is not None or event.logs is not None:
        into.record(event.logs or {}, event.step, event.update, timed=timed, awaits=event.awaits)


def restore(run: Run, kept: SavedState) -> None:
    """Put the last state of a process that is gone into ``run``. If it was still running, it was killed."""
    run.feed.snapshot = kept.snapshot
    if not kept.state.over:
        run.enter(*_KILLED)


def write_beside(recorded: str | Path, out: Path, content: Iterable[bytes], option: str) -> None:
    """Write ``content`` to ``out``.

    Raises: SetupError if that is the ``recorded`` file itself, is no regular file, or cannot be written.
    """
    try:
        if out.exists() and out.samefile(recorded):
            raise SetupError(f"{out} is the recording itself: name another file to write ({option})")
        out.parent.stat()  # a folder that is not there is a slip: it is not made
        write_whole(out, content)
    except OSError as error:
        raise SetupError(f"cannot write {out}: {error.strerror} ({option})") from None


def _served(facts: RunFacts) -> RunFacts:
    return replace(facts, info={"torch": "", **facts.info})  # else this machine's torch would be served


def _judged_as(facts: RunFacts) -> tuple[str, ...]:
    return facts.algorithm, facts.framework, facts.judged_as
