"""Holds the current state of a run: a change makes a new snapshot and swaps one reference.

Writers share a lock. Readers need none: `Current.snapshot`, read once, is consistent. The lock is reentrant because a
signal handler may write while the thread that it interrupts is writing; the interrupted change is then made once more,
on top of the handler's.

A step changes its phase five times and more, and mostly nobody looks. So the samples of the phase under way are kept
beside the snapshot, and whoever reads next puts them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock

from rlexporter.model.metric import Metric, Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.store.builder import SnapshotBuilder

Samples = Mapping[Series, float]


class Current:
    """The state now, of which ``snapshot`` is the first. ``named``: the catalog by Prometheus name."""

    def __init__(self, snapshot: Snapshot, named: Mapping[str, Metric]) -> None:
        self._named = named
        self.lock = RLock()
        self._now: tuple[Snapshot, Samples]
        self._shown: tuple[object, Snapshot]
        self.snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The state now; the same object until something changes. For any thread."""
        now, shown = self._now, self._shown  # each is one reference, so that no reader mixes two states
        if shown[0] is not now:
            made, phase = now
            shown = self._shown = (now, replace(made, samples={**made.samples, **phase}))
        return shown[1]

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        """Put another state in place, with its own phase."""
        self._now = (snapshot, {})
        self._shown = (self._now, snapshot)

    @property
    def unphased(self) -> Snapshot:
        """The state now, with the phase of its last change: it costs nothing."""
        return self._now[0]

    def value(self, series: Series) -> float:
        """Return the value of ``series``, which no phase changes; 0 without one."""
        return self._now[0].samples.get(series, 0.0)

    def change(self, edit: Callable[[SnapshotBuilder], None]) -> None:
        """Make one change visible at once. ``edit`` may be called twice, on different snapshots."""

        def changed(made: Snapshot, phase: Samples) -> tuple[Snapshot, Samples]:
            builder = SnapshotBuilder(made, self._named)
            edit(builder)
            return builder.freeze(), phase

        self._swap(changed)

    def phase(self, samples: Samples) -> None:
        """Put the ``samples`` of a phase in place of those of the one before."""
        self._swap(lambda made, _: (made, samples))

    def renew_lock(self) -> None:
        """Make a new lock in a forked child, since no thread is there to release one that the parent held."""
        self.lock = RLock()

    def _swap(self, changed: Callable[[Snapshot, Samples], tuple[Snapshot, Samples]]) -> None:
        with self.lock:
            while True:
                base = self._now
                now = changed(*base)
                if self._now is base:
                    self._now = now
                    return
