"""Recorded runs as they were served: the store and the history after each event."""

from __future__ import annotations

from pathlib import Path

from rlexporter import recording
from rlexporter.catalog import CATALOG
from rlexporter.commands.recorded_alerts import feed
from rlexporter.conditions import from_catalog
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.status import conditions, verdict
from rlexporter.status.history import History
from rlexporter.status.samples import Samples
from rlexporter.store.store import Store

NOW = 1000.0


def judged(algorithm: str = "grpo") -> Store:
    """A store that judges, of a run at step 0, on a clock that stands still."""
    store = Store(CATALOG, clock=lambda: NOW, watch=from_catalog.watch())
    store.begin(RunFacts(algorithm=algorithm, step=0), {"run": "test", "rank": "0"})
    return store


def recorded(file: Path) -> tuple[Snapshot, History, float]:
    """What is served at the end of a recording, with its history and the time."""
    found, clock, history = recording.read(str(file), ""), [0.0], History()
    store = Store(CATALOG, clock=lambda: clock[0], watch=from_catalog.watch())
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
    samples = Samples(snapshot)
    return verdict.verdict(samples, conditions.began(samples), now)
