"""What goes into a run: log lines, tensors, steps, and what taps saw. Nothing here raises into a training loop.

Errors are counted, and logged once a kind.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from rlexporter.catalog import CATALOG, NAMED
from rlexporter.conditions import from_catalog as table
from rlexporter.config.settings import Settings
from rlexporter.model.metric import Series, Snapshot
from rlexporter.model.sink import NotSeenError, StepUpdate
from rlexporter.recording.writer import Recorder
from rlexporter.run import shutdown as process
from rlexporter.run.pending_step import Gather
from rlexporter.store.store import Store
from rlexporter.tensors import host
from rlexporter.tensors.tally import on_gpu

logger = logging.getLogger("rlexporter")

_STEP = Series(NAMED["rl_step"])


class Intake:
    """A store, and all that feeds it. ``clock``: seconds since the epoch."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        watch = table.watch(settings.thresholds)
        self.store = Store(CATALOG, max_keys=settings.max_keys, clock=clock, watch=watch)
        self._gather = Gather(NAMED)
        self._recorder: Recorder | None = None
        self._signals: dict[str, str] = {}
        self._errors: set[tuple[str, str]] = set()
        self._last_change = 0.0
        self._looking = False
        self._folding = Lock()

    @property
    def secondary(self) -> bool:
        """Whether what is logged is somebody else's business: that of rank 0."""
        return False

    @property
    def snapshot(self) -> Snapshot:
        """What is known now."""
        return self.store.snapshot

    def current(self) -> Snapshot:
        """What is known now, with the counts that have come from devices meanwhile. For any thread."""
        with self.guard("scrape"):
            self._fold()
        return self.store.snapshot

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """Serve a log line: TRL's keys, or others, with numbers, None, NaN, arrays or tensors.

        ``step``: the step that it belongs to; without one each line that is no evaluation is a step. Never raises.
        """
        with self._change("log"):
            self._fold()
            served = not self.secondary
            stats = self._without_gpu(stats) if served else stats
            update = update and self._gather.take(update)
            self.store.record(stats, None if step is None else int(step), update, served=served)
            if update is None:
                self.flush()
            if self._recorder is not None:
                if update is not None:
                    self._recorder.step(update)
                self._recorder.log(self._step, stats if served else {})

    def observe(self, name: str, values: Any, mask: Any = None, **labels: str) -> None:
        """Count values in the histogram ``name``: ``policy_ratio`` for ``rl_policy_ratio_dist``.

        ``values``: a tensor or array of any shape; ``mask``: which of them count, of a shape that broadcasts to it;
        ``labels``: those of the histogram, if it has any. A tensor on a GPU is counted there, and served with the next
        log line. Never raises: an unknown name is logged, with the names that are close.
        """
        with self._change("observe"):
            started = time.perf_counter()
            series = self.store.histogram(name, labels)
            self.store.tap(series.metric)
            if on_gpu(values):
                self._gather.tally.add(series, values, mask)
                self._gather.cost(time.perf_counter() - started)
            else:
                counted = host.count(values, series.metric.bounds, mask)
                self._gather.cost(time.perf_counter() - started)
                seen, overhead = {series: counted}, self._gather.take_overhead()
                self._absorb(StepUpdate(step=self._step, seen=seen, overhead=overhead))

    def advance(self, update: StepUpdate) -> None:
        """One step is done. Never raises."""
        with self._change("step"):
            process.chain_sigterm()
            self._fold()
            update = self._gather.take(update)
            self.store.advance(update)
            if self._recorder is not None:
                self._recorder.step(update)

    def saved(self, step: int) -> None:
        """A checkpoint was written. Never raises."""
        with self._change("event"):
            self.store.saved(step)

    def see(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        """Values of a metric, seen at the tensor in this step. Raises what cannot be counted, for `guard`."""
        self.store.tap(self._gather.see(name, values, mask, labels))

    def undefined(self, name: str, count: int) -> None:
        """So many values of a metric were not given."""
        self._gather.undefined(name, count)

    def values(self, key: str, numbers: list[float]) -> None:
        """Numbers that the trainer is about to average under this log key."""
        if not self.secondary:
            self._gather.values(key, numbers)

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        """Whether a signal can be seen in this run; ``reason``: why not; ``error``: it should have been."""
        if self._signals.get(name) != reason:
            self._signals[name] = reason
            self.store.signal(name, reason, "error" if error else "configuration")

    @contextlib.contextmanager
    def seeing(self, signal: str) -> Iterator[None]:
        """What is looked at inside is this signal; where that fails, the signal is lost and nothing else."""
        started, nested, self._looking = time.perf_counter(), self._looking, True
        try:
            yield
        except NotSeenError as reason:
            self.signal(signal, str(reason))
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.signal(signal, _said(error), error=True)
            self.failed("tap", error)
        else:
            self.signal(signal)
        finally:
            self._looking = nested
            if not nested:
                self._gather.cost(time.perf_counter() - started)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The time inside is that of this phase."""
        with self.guard("tap"):
            self._gather.phases.enter(name)
            self.store.phase(name)
        try:
            yield
        finally:
            with self.guard("tap"):
                self._gather.phases.leave()
                self.store.phase(self._gather.phases.current)

    def flush(self) -> None:
        """Bring what was counted on a device to safety, before something that may fail."""
        with self.guard("tap"):
            self._gather.tally.flush(self._step)

    @contextlib.contextmanager
    def guard(self, where: str) -> Iterator[None]:
        """Keep errors away from training: counted in ``rlexporter_errors_total{where}``, logged once a kind."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.failed(where, error)

    def failed(self, where: str, error: Exception) -> None:
        """Count an error of the exporter's own, and log the first of its kind. Never raises."""
        with contextlib.suppress(Exception):
            self.store.change(lambda draft: draft.add("rlexporter_errors_total", 1, where))
            kind = (where, type(error).__name__)
            if kind not in self._errors:
                self._errors.add(kind)
                text = "%s failed: %s. Training goes on; further errors of this kind are only counted."
                logger.warning(text, where, error or type(error).__name__, exc_info=error)

    @property
    def _step(self) -> int:
        return int(self.snapshot.samples.get(_STEP, 0))

    @contextlib.contextmanager
    def _change(self, where: str) -> Iterator[None]:
        with self.guard(where):
            yield
        self._last_change = time.monotonic()

    def _without_gpu(self, stats: Mapping[str, object]) -> Mapping[str, object]:
        """The line without what lies on a GPU: that is counted there, since to read it here would wait."""
        there = {key: value for key, value in stats.items() if type(value) is not float and on_gpu(value)}
        for key, value in there.items():
            for series in self.store.targets(key, stats):
                self._gather.tally.add(series, value)
        return {key: value for key, value in stats.items() if key not in there} if there else stats

    def _fold(self) -> None:
        """Serve what has come from devices meanwhile, part by part: totals that overtake each other would shrink.

        Where another thread is at it, or the one that a signal interrupted, it is left to that: nobody waits.
        """
        if not self._folding.acquire(blocking=False):
            return
        try:
            for step, seen in self._gather.tally.arrived():
                self._absorb(StepUpdate(step=step, seen=seen))
        finally:
            self._folding.release()

    def _drain(self) -> None:
        """Serve what was seen in a step that will not end."""
        part = self._gather.take(StepUpdate(step=self._step))
        self._absorb(replace(part, phases={}))

    def _absorb(self, part: StepUpdate) -> None:
        self.store.absorb(part)
        if self._recorder is not None:
            self._recorder.part(part)


def _said(error: Exception) -> str:
    """What is served of an error: a text may hold anything, and is in the log; a key that was looked for is ours."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, KeyError) else f"{kind}: see the log of the training"
