"""Takes the input of a run: log lines, tensors, steps, and what taps see. Nothing raises into a training loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.checkpoint import Folders
from rlexporter.model.metric import Kind, Series
from rlexporter.model.sink import NotSeenError, Rollout
from rlexporter.model.step import StepUpdate, whole
from rlexporter.model.values import Unreadable, read
from rlexporter.run import shutdown
from rlexporter.run.error_log import ErrorLog
from rlexporter.run.pending_step import PendingStep
from rlexporter.status.completions import Completions
from rlexporter.store.keys import clip
from rlexporter.store.store import Store
from rlexporter.tensors import host
from rlexporter.tensors.tally import on_gpu

if TYPE_CHECKING:
    from rlexporter.recording.writer import Recorder

_KEYS = frozenset(key.name for metric in NAMED.values() for key in metric.keys if not key.only)
"""Keys of log lines: an array under one of them is what is logged, and not what a histogram of that name counts."""


class RunSink:
    """Feeds a store: the `Sink` of one run, as `rlexporter.model.sink` describes its methods.

    ``serves_logs``: returns True if this rank serves what is logged; logs are reduced over all ranks, so that only one
    rank may serve them. The training thread calls everything here except `fold`, which any thread may call.
    """

    def __init__(
        self, store: Store, errors: ErrorLog, serves_logs: Callable[[], bool], completions: Completions
    ) -> None:
        self.recorder: Recorder | None = None
        self.changed_at = 0.0
        """The time of the last input, in seconds of the monotonic clock."""
        self._store = store
        self._errors = errors
        self._serves_logs = serves_logs
        self._completions = completions
        self._pending = PendingStep()
        self._signals: dict[str, str] = {}
        self._tapped: dict[tuple[str, tuple[str, ...]], Series] = {}
        self._undo: list[Callable[[], None]] = []
        self._before_end: list[Callable[[], None]] = []
        self.is_observing = False
        """True inside a block of `observing`, whose time counts once."""
        self._folding, self._folds = RLock(), False

    def log(
        self,
        stats: Mapping[str, object],
        *,
        step: object = None,
        update: StepUpdate | None = None,
        flush: bool = True,
    ) -> None:
        """Take one log line and its step update. Without ``step`` and ``update`` each line is a step.

        A step that is no whole number of at most 2**53, and a key that is no text and cannot become one, are left out
        and counted as errors; the rest of the line is served.

        ``flush``: False for a line that was made with `ahead`, which may come from a thread that must not call CUDA.
        """
        with self.changing("log"):
            self.fold()
            served, at, stats = self._serves_logs(), self._number(step), self._texts(stats)
            if served:  # tensors on a GPU are counted there, since reading them would wait
                there = {key: value for key, value in stats.items() if type(value) is not float and on_gpu(value)}
                for key, value in there.items():
                    for series in self._store.targets(key, stats):
                        self._pending.tally.add(series, value)
                stats = {key: value for key, value in stats.items() if key not in there} if there else stats
            update = update and self._pending.take(update)
            awaits = self._pending.tally.under_way
            self._store.record(stats, at, update, served=served, awaits=awaits)
            if update is None and flush:
                self._pending.tally.flush(self._store.step)
            if self.recorder is not None:
                if update is not None:
                    self.recorder.step(update, awaits=awaits)
                self.recorder.log(self._store.step, stats if served else {}, awaits=awaits)

    def advance(self, update: StepUpdate) -> None:
        with self.changing("step"):
            shutdown.chain_sigterm()
            self.fold()
            update = self._pending.take(update)
            awaits = self._pending.tally.under_way
            self._store.advance(update, awaits=awaits)
            if self.recorder is not None:
                self.recorder.step(update, awaits=awaits)

    def saved(self, step: int) -> None:
        with self.changing("event"):
            self._store.saved(step)

    def folders(self, folders: Folders) -> None:
        with self.changing("event"):
            self._store.folders(folders)

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        series = self._tapped.get((name, labels))
        if series is None:
            metric = self._store.named.get(name)
            if metric is None or len(metric.labels) != len(labels):
                raise LookupError(f"no metric is called {name!r} and has {len(labels)} labels")
            series = self._tapped[name, labels] = Series(metric, tuple(map(clip, labels)))
        self._pending.tally.add(series, values, mask)
        self._store.tap(series.metric)

    def observe_at_once(self, name: str, values: Any, mask: Any = None, **labels: str) -> None:
        """Count values in a histogram that a user names, as `Exporter.observe` says. Never raises."""
        with self.changing("observe"):
            started = time.perf_counter()
            series = self._store.histogram(name, labels)
            self._store.tap(series.metric)
            if on_gpu(values):
                self._pending.tally.add(series, values, mask)
                self._pending.overhead += time.perf_counter() - started
            else:
                self._count_on_host(series, values, mask, started)

    def ahead(self, stats: Mapping[str, object]) -> dict[str, object]:
        """Count the arrays and tensors of a line now; return its other values, with which the line may wait.

        So nothing keeps a tensor, and nobody can change an array meanwhile. An array whose key is that of a histogram,
        or is no key but a name that `Exporter.observe` takes, is counted exactly; any other becomes its mean.
        """
        kept: dict[str, object] = {}
        waits = False
        for key, value in stats.items():
            if isinstance(value, (int, float)):
                kept[key] = value
                continue
            with self.changing("observe"):
                if on_gpu(value):
                    for series in self._counted_in(key, stats):
                        self._pending.tally.add(series, value)
                    waits = True
                elif (read_as := read(value)) is value or isinstance(read_as, list):
                    kept |= self._count(key, read_as, stats)
                elif read_as is not Unreadable.IGNORED:
                    kept[key] = read_as if read_as is not Unreadable.UNDEFINED else None
        if waits:
            with self.guard("tap"):
                self._pending.tally.flush(self._store.step)
        return kept

    def undefined(self, name: str, count: int) -> None:
        self._pending.undefined(name, count)

    def evaluated(self) -> None:
        """Serve what was seen in an evaluation. It is judged when the evaluation is logged."""
        with self.changing("event"):
            self._absorb(self._pending.part(self._store.step))

    def values(self, numbers: Mapping[str, list[float]]) -> None:
        if self._serves_logs():
            self._pending.values(numbers)

    def completions(self, read: Callable[[], Rollout | None], *, done: bool = False) -> None:
        """Keep completions of the step under way, or of the one that is ``done``, if the settings ask for some."""
        if self._completions.most and self._serves_logs():
            with self.guard("tap"):
                if (rollout := read()) is not None:
                    self._completions.see(self._store.step + (not done), rollout)

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        if self._signals.get(name) != reason:
            self._signals[name] = reason
            self._store.signal(name, reason, "error" if error else "configuration")

    def observing(self, signal: str) -> contextlib.AbstractContextManager[None]:
        return _Observing(self, signal)

    def observed(self, signal: str, error: BaseException | None, seconds: float) -> bool:
        """Say how observing ``signal`` went, and what it cost; return False for an ``error`` that goes on."""
        self._pending.overhead += seconds
        if error is None:
            self.signal(signal)
        elif isinstance(error, NotSeenError):
            self.signal(signal, str(error))
        elif isinstance(error, Exception):  # the boundary: nothing of ours may reach a trainer
            self.signal(signal, _said(error), error=True)
            self._errors.add("tap", error)
        else:
            return False
        return True

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        phases = self._pending.phases
        self._under_way(phases.enter, name)
        try:
            yield
        finally:
            self._under_way(phases.leave)

    def _under_way(self, change: Callable[..., None], *name: str) -> None:
        try:
            change(*name)
            self._store.phase(self._pending.phases.current)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._errors.add("tap", error)

    def flush(self) -> None:
        """Start to copy counts of the step under way from devices to the host, before something that may fail."""
        with self.guard("tap"):
            self._pending.tally.flush(self._store.step + 1)

    def guard(self, where: str) -> contextlib.AbstractContextManager[None]:
        return self._errors.guard(where)

    def on_close(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def before_end(self, act: Callable[[], None]) -> None:
        """Call ``act`` before the run ends, however it ends: it can log what it has held back."""
        self._before_end.append(act)

    def bring_in(self) -> None:
        """Let everybody log what they have held back."""
        for act in self._before_end:
            with self.guard("event"):
                act()

    def close(self) -> None:
        while self._undo:
            with self.guard("exit"):
                self._undo.pop()()

    def abandon(self) -> None:
        """Let go of the recording and of the lock in a forked child, which has none of the threads."""
        self.recorder = None
        self._folding, self._folds = RLock(), False

    @contextlib.contextmanager
    def changing(self, where: str) -> Iterator[None]:
        """Guard a change, and note when it was made."""
        with self._errors.guard(where):
            yield
        self.changed_at = time.monotonic()

    def fold(self) -> None:
        """Serve the counts that have arrived from devices, in order: applied out of order, totals would decrease.

        If another thread, or the code that a signal interrupted, is doing so already, return at once.
        """
        if self._folds:
            return
        with self._folding:  # Ctrl-C cannot come between its halves, as it can between `acquire` and `try`
            if not self._folds:
                try:
                    self._folds = True
                    self._take_in()
                finally:
                    self._folds = False

    def _take_in(self) -> None:
        """Serve what has arrived; judge the step that waited for it once nothing more is under way."""
        tally = self._pending.tally
        parts = [StepUpdate(step=step, seen=seen) for step, seen in tally.arrived()]
        if not parts and self._store.waits and not tally.under_way:  # it came while the line was being recorded
            parts = [StepUpdate(step=self._store.step)]
        for number, part in enumerate(parts, 1):
            self._absorb(part, last=number == len(parts) and not tally.under_way)

    def drain(self) -> None:
        """Serve what was seen in a step that will not end. Raises the error of a device that has failed."""
        part = self._pending.take(StepUpdate(step=self._store.step))
        self._absorb(replace(part, phases={}))

    def _number(self, step: object) -> int | None:
        """Return the step that was given with a line. One that is not a number counts as an error, and as not given."""
        with self.guard("log"):
            if step is not None:
                return whole(step)
        return None

    def _texts(self, stats: Mapping[str, object]) -> Mapping[str, object]:
        if all(isinstance(key, str) for key in stats):
            return stats
        kept = {}
        for key, value in stats.items():
            with self.guard("log"):
                kept[str(key)] = value
        return kept

    def _counted_in(self, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """Return the series in which an array under ``key`` is counted."""
        if key not in _KEYS:
            with contextlib.suppress(LookupError):
                return (self._store.histogram(key, {}),)
        return self._store.targets(key, line)

    def _count(self, key: str, array: Any, line: Iterable[str]) -> dict[str, object]:
        """Count an array in host memory, if ``key`` means a histogram; else return its mean."""
        series = next(iter(self._counted_in(key, line)), None)
        if series is None or series.metric.kind is not Kind.HISTOGRAM:
            return {key: host.mean(array)}
        self._count_on_host(series, array, None, time.perf_counter())
        return {}

    def _count_on_host(self, series: Series, values: Any, mask: Any, started: float) -> None:
        """Serve the counts of ``values`` at once, with what this has cost since ``started``."""
        counted = host.count(values, series.metric.bounds, mask)
        self._pending.overhead += time.perf_counter() - started
        overhead = self._pending.take_overhead()
        self._absorb(StepUpdate(step=self._store.step, seen={series: counted}, overhead=overhead))

    def _absorb(self, part: StepUpdate, *, last: bool | None = None) -> None:
        """Serve a part of a step, and record it; ``last`` as in `Store.absorb`."""
        self._store.absorb(part, last=last)
        if self.recorder is not None:
            self.recorder.part(part, last=last)


class _Observing:
    """What `RunSink.observing` returns. A step has two dozen, and a generator costs three times as much."""

    __slots__ = ("_nested", "_signal", "_sink", "_started")

    def __init__(self, sink: RunSink, signal: str) -> None:
        self._sink = sink
        self._signal = signal

    def __enter__(self) -> None:
        self._nested, self._sink.is_observing = self._sink.is_observing, True
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._sink.is_observing = self._nested
        seconds = 0.0 if self._nested else time.perf_counter() - self._started
        return self._sink.observed(self._signal, error, seconds)


def _said(error: Exception) -> str:
    """Return the text to serve for an error, with the message only of a KeyError: others may hold anything."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, KeyError) else f"{kind}: see the log of the training"
