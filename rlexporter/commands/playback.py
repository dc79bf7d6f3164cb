"""A recorded run, put into a `Run` event by event: what a replay and a report have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from rlexporter.conditions.judge import Thresholds
from rlexporter.config.settings import Settings
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.outputs.state_file import SavedState
from rlexporter.recording import Event, Recording
from rlexporter.run.run import Run
from rlexporter.store.store import Store

_EARLIEST = 1e9
"""Earliest time of a calendar: smaller numbers are seconds since something else."""
_KILLED = "Killed"
"""Exception of a process that was killed, and so could not name one."""


def calendar(recording: Recording) -> tuple[float, list[float]]:
    """Return the times of the run's beginning and of each event, never decreasing.

    Without times a step takes a second; a run without dates ends now.
    """
    known = [at for at in (recording.began, *(event.time for event in recording.events)) if isfinite(at)]
    timed = any(isfinite(event.time) for event in recording.events)
    began = now = known[0] if timed else 0.0
    times, step = [], None
    for event in recording.events:
        if timed:
            now = max(now, event.time) if isfinite(event.time) else now
        elif event.state is None:
            now += 1.0 if step is None or event.step < step else event.step - step
            step = event.step
        times.append(now)
    shift = time.time() - now if now < _EARLIEST else 0.0
    return began + shift, [each + shift for each in times]


def scheduled(recording: Recording, times: list[float]) -> Iterator[tuple[Event, float, bool]]:
    """Yield each event with its time of `calendar`, and True if it is the last one of its step."""
    following = [*recording.events[1:], None]
    for event, after, at in zip(recording.events, following, times, strict=True):
        yield event, at, _ends_step(event, after)


class Played(NamedTuple):
    """A run into which a whole recording was put, and the time at which that ended."""

    run: Run
    time: float


def played(recording: Recording, thresholds: Thresholds, see: Callable[[Run], None] = lambda run: None) -> Played:
    """Play ``recording`` at once, by its own clock; ``see`` is called after each of its steps."""
    began, times = calendar(recording)
    clock = [began]
    own = replace(Settings.load(settings(recording)), thresholds=thresholds)
    run = Run(own, clock=lambda: clock[0])
    begin(run, recording.facts)
    for event, clock[0], ends_step in scheduled(recording, times):
        apply(run, recording, event)
        if ends_step:
            see(run)
    finish(run, killed=recording.watched)
    return Played(run, clock[0])


def settings(recording: Recording) -> dict[str, Any]:
    """Return the settings of the recorded process; the environment of this process is ignored."""
    return {"run": recording.run, "algorithm": recording.facts.algorithm, "rank": 0, "world_size": 1}


def begin(run: Run, facts: RunFacts) -> None:
    """Let the training of ``run`` begin, or begin again."""
    run.prepare(replace(facts, info={"torch": "", **facts.info}))  # else this machine's torch would be served
    run.enter(RunState.RUNNING)


def apply(run: Run, recording: Recording, event: Event) -> None:
    """Put one ``event`` of ``recording`` into ``run``."""
    if event.state is None:
        with run.errors.guard("log"):
            feed(run.store, event, timed=isfinite(event.time))
    elif event.state is RunState.RUNNING and (run.state.over or run.store.snapshot.value("rl_steps_total")):
        begin(run, replace(recording.facts, step=None, totals={}))
    elif event.state.over and not run.state.over:
        run.enter(event.state, event.exception)


def feed(store: Store, event: Event, *, timed: bool = True) -> None:
    """Put the content of a recorded ``event`` into ``store``; ``timed`` as in `Store.record`."""
    for update in (event.part, event.update):
        for series in update.seen if update else ():
            store.tap(series.metric)
    if event.part is not None:
        store.absorb(event.part, last=event.last)
    elif event.update is not None or event.logs is not None:
        store.record(event.logs or {}, event.step, event.update, timed=timed, awaits=event.awaits)


def finish(run: Run, *, killed: bool = False) -> None:
    """End ``run``, as failed if it was ``killed``, unless its end is recorded.

    Not every recorder writes how a run ended.
    """
    if run.state.over:
        return
    if killed:
        run.enter(RunState.FAILED, _KILLED)
    else:
        run.enter(RunState.FINISHED)


def restore(run: Run, kept: SavedState) -> None:
    """Put the last state of a process that is gone into ``run``: what still ran was killed."""
    run.store.snapshot = kept.snapshot
    if not kept.state.over:
        finish(run, killed=True)


def _ends_step(event: Event, after: Event | None) -> bool:
    return event.state is None and (after is None or after.state is not None or after.step != event.step)
