"""Recorded runs as they were served: the store and the history after each event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.incidents import ranked, word
from rlexporter.conditions.watch import watch
from rlexporter.feed.builder import SnapshotBuilder, write_incidents
from rlexporter.feed.feed import Feed
from rlexporter.logs import reader
from rlexporter.logs.playback import feed
from rlexporter.model.condition import Severity
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.status import verdict
from rlexporter.status.history import History
from rlexporter.status.samples import Samples

NOW = 1000.0


def judged(algorithm: str = "grpo") -> Feed:
    """A store that judges, of a run at step 0, on a clock that stands still."""
    store = Feed(CATALOG, clock=lambda: NOW, watch=watch())
    store.begin(RunFacts(algorithm=algorithm, step=0), {"run": "test", "rank": "0"})
    return store


def recorded(file: Path) -> tuple[Snapshot, History, float]:
    """What is served at the end of a recording, with its history and the time."""
    found, clock, history = reader.read(str(file), ""), [0.0], History()
    store = Feed(CATALOG, clock=lambda: clock[0], watch=watch())
    store.begin(found.facts, {"run": found.run, "rank": "0"})
    store.enter(RunState.RUNNING)
    for event in found.events:
        clock[0] = event.time
        if event.state is not None:
            store.settle()
            store.enter(event.state, "RuntimeError" if event.state.value == "failed" else "")
        else:
            feed(store, event)
        history.see(store.snapshot)
    return store.snapshot, history, clock[0]


def said(snapshot: Snapshot, now: float = NOW) -> verdict.Verdict:
    """The verdict on what is served."""
    return verdict.verdict(Samples(snapshot), now)


def goes_wrong(
    store: Feed, name: str, severity: str, step: int, standing: Standing = Standing.HOLDS, *, cause: str = ""
) -> None:
    """Let a limit of a condition have begun in a step, without numbers that would do so."""
    level = Severity(severity)
    new = Incident(name, level, standing, word(level, standing, store.step - step), step, step, step, NOW, 7.0, 3.0)

    def edit(builder: SnapshotBuilder) -> None:
        before = [each for each in builder.incidents if each.condition == name]
        worse = [each for each in before if severity == "warning"]  # a critical one came first in these tests
        began = min(each.began for each in (*worse, new))
        found = replace((worse or [new])[0], since=began, began=began, cause=cause)
        others = [each for each in builder.incidents if each not in before]
        write_incidents(builder, ranked([*others, found]))

    store.change(edit)
