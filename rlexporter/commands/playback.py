"""A recorded run, put into a `Run` event by event: what a replay and a report have in common."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any

from rlexporter.commands.recorded_alerts import feed
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.recording import Event, Recording, SavedState
from rlexporter.run.run import Run

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


def settings(recording: Recording) -> dict[str, Any]:
    """Return the settings of the process that trained, with nothing of this one."""
    return {"run": recording.run, "algorithm": recording.facts.algorithm, "rank": 0, "world_size": 1}


def begin(run: Run, facts: RunFacts) -> None:
    """Let the training of ``run`` begin, or begin again."""
    run.prepare(replace(facts, info={"torch": "", **facts.info}))  # else this machine's torch would be served
    run.enter(RunState.RUNNING)


def apply(run: Run, recording: Recording, event: Event) -> None:
    """Put one ``event`` of ``recording`` into ``run``."""
    if event.state is None:
        with run.errors.guard("log"):
            feed(run.store, event)
    elif event.state is RunState.RUNNING:
        begin(run, replace(recording.facts, step=None, totals={}))
    elif event.state.over and not run.state.over:
        run.enter(event.state, event.exception)


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
