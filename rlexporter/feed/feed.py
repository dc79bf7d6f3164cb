"""All that changes a run: log lines, steps, tensors, events. One lock, one change, one snapshot.

`Feed.snapshot` never changes: a change builds the next one and swaps one reference, so that readers need no lock. The
lock is reentrant because a signal handler may write while the thread that it interrupts is writing. The interrupted
change is then made once more, on top of the handler's; a line of the handler comes after the line that it interrupted.

A step changes its phase five times and more, and mostly nobody looks. So the samples of the phase under way are kept
beside the snapshot, and whoever reads next puts them in.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from rlexporter.conditions.view import ASIDE
from rlexporter.conditions.watch import Judged, Turn, Turns, Watch
from rlexporter.feed.builder import SnapshotBuilder, begin_conditions, mark_symptoms, write_checkpoint, write_verdict
from rlexporter.feed.error_log import ErrorLog
from rlexporter.feed.keys import clip
from rlexporter.feed.log_lines import LogLines
from rlexporter.model.checkpoint import Folders
from rlexporter.model.metric import Framework, Kind, Metric, Series
from rlexporter.model.sink import NotSeenError, Rollout
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import LAST_STEP, RunFacts, StepUpdate, whole
from rlexporter.model.values import Unreadable, read
from rlexporter.tensors import host
from rlexporter.tensors.tally import Tally, on_gpu

if TYPE_CHECKING:
    from rlexporter.recording.writer import Recorder

_STEPS_KEPT = 64
"""The snapshots that wait for a reader, of some 100 kB each. The reader comes twice a second."""
_TEXTS = frozenset((str,))
_NUMBERS = frozenset((float, int))

Samples = Mapping[Series, float]


class Feed:
    """The state of one run and the way into it: the `Sink` of `rlexporter.model.sink`, which describes its methods.

    ``catalog``: the metrics that exist. ``max_keys``: the most keys beyond its fixed ones (unknown ones, names of
    reward functions and data sets) that a run may log; more are dropped and counted. ``clock``: seconds since the
    epoch. ``watch``: judges each step, if given. ``urgent``: called after a change that should leave the process at
    once: another state, a checkpoint, a critical condition that began. It is called on the thread that made the change.
    ``frameworks``: those other than TRL, by name, whose keys are known. ``guess``: returns the series that an unknown
    key of an unknown trainer seems to mean, or an empty string. ``stepping``: called at the end of each step.

    The training thread calls everything here except `snapshot`, `fold`, `guard` and `change`, which any thread may
    call. A signal handler that has interrupted the training thread may call all of it.
    """

    def __init__(  # noqa: PLR0915 - a field a line
        self,
        catalog: Sequence[Metric],
        *,
        max_keys: int = 200,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        urgent: Callable[[], None] = lambda: None,
        frameworks: Mapping[str, Framework] | None = None,
        guess: Callable[[str, float], str] = lambda key, value: "",
        stepping: Callable[[], None] = lambda: None,
    ) -> None:
        self.named = {metric.series: metric for metric in catalog}
        """The catalog by Prometheus name."""
        self.errors = ErrorLog(self.change)
        self.recorder: Recorder | None = None
        self.serves_logs = True
        """False on ranks that do not serve what is logged: logs are reduced over all ranks."""
        self.keep_rollout: Callable[[int, Rollout], None] | None = None
        """Takes the completions that were made for a step, if somebody asked for some."""
        self.changed_at = 0.0
        """The time of the last input, in seconds of the monotonic clock."""
        self._catalog = catalog
        self._frameworks = frameworks or {}
        self._clock = clock
        self._watch = watch
        self._turns = None if watch is None else Turns(watch)
        self._urgent = urgent
        self._stepping = stepping
        self._lines = LogLines(catalog, max_keys, guess)
        self._logged_keys = frozenset(key.name for metric in catalog for key in metric.keys if not key.only)
        self._histograms = {metric.short_name: metric for metric in catalog if metric.kind is Kind.HISTOGRAM}
        self._step, self._stall = Series(self.named["rl_step"]), Series(self.named["rl_stall_after_seconds"])
        self._recording = Series(self.named["rlexporter_record_seconds_total"])
        self._record_seconds = 0.0
        names = [name for (name,) in self.named["rl_phase"].initial]
        self._phase_samples = {
            name: {Series(self.named["rl_phase"], (phase,)): float(phase == name) for phase in names}
            for name in ("", *names)
        }
        self._folders = Folders()
        self._steps: deque[Snapshot] | None = None

        # What was seen since the last step.
        self._tally = Tally()
        self._phases = PhaseTimer()
        self._phase = ""
        self._undefined: dict[str, int] = {}
        self._averaged: dict[str, list[float]] = {}
        self._overhead = 0.0  # the seconds that observing has cost the training thread
        self._observing = False  # inside a block of `observing`, whose time counts once

        self._tapped: dict[tuple[str, tuple[str, ...]], Series] = {}
        self._signals: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []
        self._before_end: list[Callable[[], None]] = []

        self._lock = RLock()
        self._logs, self._later = False, deque[Callable[[], None]]()
        self._folds = False
        self._now: tuple[Snapshot, Samples]
        self._shown: tuple[object, Snapshot]
        self.snapshot = Snapshot(
            samples={Series(metric, labels): 0.0 for metric in catalog for labels in metric.initial}
        )

    # The state now.

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
    def step(self) -> int:
        """The step of the run, 0 before its first."""
        return int(self._now[0].samples.get(self._step, 0.0))

    def keep_steps(self) -> deque[Snapshot]:
        """Keep the snapshots of the newest steps for a reader on another thread, who takes them out."""
        self._steps = self._steps if self._steps is not None else deque(maxlen=_STEPS_KEPT)
        return self._steps

    def change(self, edit: Callable[[SnapshotBuilder], None]) -> None:
        """Make one change visible at once. ``edit`` may be called twice, on different snapshots. For any thread."""
        with self._lock:
            for builder in self._changes():
                edit(builder)

    def _changes(self) -> Iterator[SnapshotBuilder]:
        """Yield a builder of the next snapshot, once more if a signal handler has changed the run meanwhile.

        The snapshot is swapped when the caller, who holds the lock, asks for the next builder.
        """
        while True:
            now = self._now
            builder = SnapshotBuilder(now[0], self.named)
            yield builder
            made = (builder.freeze(), now[1])
            if self._now is now:
                self._now = made
                return

    # Log lines and steps.

    def log(
        self,
        stats: Mapping[str, object],
        step: object = None,
        update: StepUpdate | None = None,
        *,
        flush: bool = True,
    ) -> None:
        """Take one log line and its step update. Without ``step`` and ``update`` each line is a step.

        A step that is no whole number of at most 2**53, and a key that is no text and cannot become one, are left out
        and counted as errors; the rest of the line is served.

        ``flush``: False for a line that was made with `ahead`, which may come from a thread that must not call CUDA.
        """
        self._in_turn("log", partial(self._line, stats, step, update, flush))

    def advance(self, update: StepUpdate) -> None:
        self._in_turn("step", partial(self._line, None, None, update, False))

    def _in_turn(self, where: str, act: Callable[[], None]) -> None:
        """Take a line. One of a signal handler that has interrupted another line is taken after it."""
        try:
            with self._lock:
                if self._logs:
                    self._later.append(act)
                    return
                try:
                    self._logs = True
                    act()
                    while self._later:
                        self._later.popleft()()
                finally:
                    self._logs = False
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.errors.add(where, error)
        self.changed_at = time.monotonic()

    def _line(self, stats: Mapping[str, object] | None, given: object, update: StepUpdate | None, flush: bool) -> None:
        """Serve a line, or the end of a step that has none (None), with what was seen in the step; then record it."""
        if stats is None:
            self._stepping()
        if self._tally.devices:
            self.fold()
        step = given if type(given) is int and 0 <= given <= LAST_STEP else None
        if step is None and given is not None:
            with self.guard("log"):
                step = whole(given)
        line = stats or {}
        if not _TEXTS.issuperset(map(type, line)):
            line = self._with_texts(line)
        if self.serves_logs and not _NUMBERS.issuperset(map(type, line.values())):
            line = self._counted_on_devices(line)
        if update is not None:
            update = self._ended(update)
        awaits = self._tally.under_way if self._tally.devices else False
        self.record(line, step, update, served=self.serves_logs, awaits=awaits)
        if update is None and flush and self._tally.devices:
            self._tally.flush(self.step)
        if self.recorder is not None:
            if update is not None:
                self.recorder.step(update, awaits=awaits)
            if stats is not None:
                self.recorder.log(self.step, line if self.serves_logs else {}, awaits=awaits)

    def record(
        self,
        logs: Mapping[str, object],
        step: int | None = None,
        update: StepUpdate | None = None,
        *,
        served: bool = True,
        timed: bool = True,
        awaits: bool = False,
    ) -> None:
        """Read a line, write it with its step update, and judge the step, as one change.

        ``logs`` is read once, never kept or changed. Without a ``step`` each line is a step unless it is an evaluation.
        ``served``: True if this rank serves the values; ``timed``: False if the clock does not tell when it was logged.
        ``awaits``: True if counts of the step are on their way from a device: it is served, and judged with them.
        """
        started = time.perf_counter()
        judged: Sequence[Judged] | None = None
        with self._lock:
            now = self._clock()
            line = self._lines.read(logs, update, served=served)
            for builder in self._changes():
                at = self._lines.write(builder, line, step, update, now)
                builder.samples[self._recording] = self._record_seconds
                if judged is None and self._turns is not None:  # a step counts once, however often it is written
                    turn = Turn(builder.anomalies, line.judged, update, at, now, timed)
                    judged = self._turns.evaluation(turn) if line.prefix else self._turns.take(turn, awaits=awaits)
                self._write(builder, judged or ())
                if line.prefix and not builder.get("rl_steps_total") and builder.get("rl_run_state", "starting"):
                    builder.clear("rl_stall_after_seconds")  # an evaluation without a training cannot stall
            if self._steps is not None:
                self._steps.append(self._now[0])
            self._hurry(judged or ())
            self._record_seconds += time.perf_counter() - started

    def _with_texts(self, line: Mapping[str, object]) -> Mapping[str, object]:
        """Return ``line`` with keys that are texts; one that cannot become a text is left out and counted."""
        kept = {}
        for key, value in line.items():
            with self.guard("log"):
                kept[str(key)] = value
        return kept

    def _counted_on_devices(self, line: Mapping[str, object]) -> Mapping[str, object]:
        """Count the tensors of ``line`` that are on a GPU there, since reading them would wait; return the rest."""
        rest = dict(line)
        for key, value in line.items():
            if on_gpu(value):
                del rest[key]
                for series in self.targets(key, line):
                    self._tally.add(series, value)
        return rest if len(rest) < len(line) else line

    def targets(self, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """Return the series that ``key`` feeds in a line with the keys ``line``; empty if there is no room for it.

        The snapshot does not change before the next line is taken.
        """
        with self._lock:
            return self._lines.targets(key, line)

    def _ended(self, update: StepUpdate) -> StepUpdate:
        """Return ``update`` with everything that was seen since the last one."""
        averaged, self._averaged = self._averaged, {}
        undefined, self._undefined = self._undefined, {}
        overhead, self._overhead = self._overhead, 0.0
        return replace(
            update,
            seen=self._tally.take(update.step),
            undefined=undefined,
            values={key: tuple(numbers) for key, numbers in averaged.items()},
            phases=self._phases.take(),
            overhead=overhead,
        )

    # What taps see.

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        series = self._tapped.get((name, labels))
        if series is None:
            metric = self.named.get(name)
            if metric is None or len(metric.labels) != len(labels):
                raise LookupError(f"no metric is called {name!r} and has {len(labels)} labels")
            series = self._tapped[name, labels] = Series(metric, tuple(map(clip, labels)))
        self._tally.add(series, values, mask)
        self._lines.tapped.add(name)

    def observe_at_once(self, series: Series, values: Any, mask: Any = None) -> None:
        """Count values in a histogram that a user has named, as `Exporter.observe` says. Never raises."""
        with self.changing("observe"):
            started = time.perf_counter()
            self.tap(series.metric)
            if on_gpu(values):
                self._tally.add(series, values, mask)
                self._overhead += time.perf_counter() - started
            else:
                self._count_on_host(series, values, mask, started)

    def histogram(self, name: str, labels: Mapping[str, str]) -> Series:
        """Return the histogram ``name`` with these ``labels``: ``policy_ratio`` is ``rl_policy_ratio_dist``.

        Raises: LookupError for an unknown name, and for labels that the histogram does not have.
        """
        metric = self._histograms.get(name.removeprefix("rl_").removesuffix("_dist"))
        if metric is None:
            close = get_close_matches(name, self._histograms, n=3)
            hint = f"close: {', '.join(close)}" if close else f"there are {', '.join(self._histograms)}"
            raise LookupError(f"no histogram is called {name!r}; {hint}")
        if set(labels) != set(metric.labels):
            raise LookupError(f"{metric.series} has the labels {metric.labels}, not {tuple(labels)}")
        return Series(metric, tuple(clip(labels[label]) for label in metric.labels))

    def tap(self, metric: Metric) -> None:
        """Feed ``metric`` by taps from now on, and not by log lines."""
        self._lines.tapped.add(metric.series)

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
                        self._tally.add(series, value)
                    waits = True
                elif (read_as := read(value)) is value or isinstance(read_as, list):
                    counted = next(iter(self._counted_in(key, stats)), None)
                    if counted is None or counted.metric.kind is not Kind.HISTOGRAM:
                        kept[key] = host.mean(read_as)
                    else:
                        self._count_on_host(counted, read_as, None, time.perf_counter())
                elif read_as is not Unreadable.IGNORED:
                    kept[key] = read_as if read_as is not Unreadable.UNDEFINED else None
        if waits:
            with self.guard("tap"):
                self._tally.flush(self.step)
        return kept

    def _counted_in(self, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """Return the series in which an array under ``key`` is counted."""
        if key not in self._logged_keys:  # else it is what is logged, and not what a histogram of that name counts
            with contextlib.suppress(LookupError):
                return (self.histogram(key, {}),)
        return self.targets(key, line)

    def _count_on_host(self, series: Series, values: Any, mask: Any, started: float) -> None:
        """Serve the counts of ``values`` at once, with what this has cost since ``started``."""
        counted = host.count(values, series.metric.bounds, mask)
        overhead, self._overhead = self._overhead + time.perf_counter() - started, 0.0
        self._serve_part(StepUpdate(step=self.step, seen={series: counted}, overhead=overhead))

    def undefined(self, name: str, count: int) -> None:
        if count:
            self._undefined[name] = self._undefined.get(name, 0) + count

    def values(self, numbers: Mapping[str, list[float]]) -> None:
        if self.serves_logs:
            for key, own in numbers.items():
                self._averaged.setdefault(key, []).extend(own)

    def completions(self, read: Callable[[], Rollout | None], *, done: bool = False) -> None:
        if self.keep_rollout is not None and self.serves_logs:
            with self.guard("tap"):
                if (rollout := read()) is not None:
                    self.keep_rollout(self.step + (not done), rollout)

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        if self._signals.get(name) == reason:
            return
        self._signals[name] = reason
        with self._lock:
            for builder in self._changes():
                builder.set("rl_signal_available", float(not reason), name)
                builder.clear("rl_signal_unavailable_info", name)
                builder.reasons.pop(name, None)
                if reason:
                    builder.set("rl_signal_unavailable_info", 1.0, name, "error" if error else "configuration")
                    builder.reasons[name] = clip(reason)

    def observing(self, signal: str) -> contextlib.AbstractContextManager[None]:
        return _Observing(self, signal)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with self.guard("tap"):
            self._phases.enter(name)
            self.under_way(self._phases.current)
        try:
            yield
        finally:
            with self.guard("tap"):
                self._phases.leave()
                self.under_way(self._phases.current)

    def under_way(self, phase: str) -> None:
        """Note that ``phase`` is under way; empty: none is."""
        samples: Samples = self._phase_samples.get(phase) or self._phase_samples[""]
        if self._watch is not None and phase in ASIDE:
            samples = {**samples, self._stall: self._watch.stall_after(phase)}
        if self._watch is not None and self._phase in ASIDE and phase not in ASIDE:
            self._watch.aside_over(self._clock())
        self._phase = phase
        with self._lock:
            while True:
                now = self._now
                made = (now[0], samples)
                if self._now is now:
                    self._now = made
                    return

    # What was counted on devices, or without the end of a step.

    def flush(self) -> None:
        with self.guard("tap"):
            self._tally.flush(self.step + 1)

    def fold(self) -> None:
        """Serve the counts that have arrived from devices, in order: applied out of order, totals would decrease.

        If another thread, or the code that a signal interrupted, is doing so already, return at once.
        """
        if self._folds:
            return
        with self._lock:  # Ctrl-C cannot come between its halves, as it can between `acquire` and `try`
            if not self._folds:
                try:
                    self._folds = True
                    tally = self._tally
                    parts = [StepUpdate(step=step, seen=seen) for step, seen in tally.arrived()]
                    if not parts and self._turns and not tally.under_way:  # it came while the line was being taken
                        parts = [StepUpdate(step=self.step)]
                    for number, part in enumerate(parts, 1):
                        self._serve_part(part, last=number == len(parts) and not tally.under_way)
                finally:
                    self._folds = False

    def evaluated(self) -> None:
        """Serve what was seen in an evaluation. It is judged when the evaluation is logged."""
        with self.changing("event"):
            undefined, self._undefined = self._undefined, {}
            self._serve_part(StepUpdate(step=self.step, seen=self._tally.take(self.step), undefined=undefined))

    def drain(self) -> None:
        """Serve what was seen in a step that will not end. Raises the error of a device that has failed."""
        self._serve_part(replace(self._ended(StepUpdate(step=self.step)), phases={}))

    def _serve_part(self, part: StepUpdate, *, last: bool | None = None) -> None:
        """Serve a part of a step, and record it; ``last`` as in `absorb`."""
        self.absorb(part, last=last)
        if self.recorder is not None:
            self.recorder.part(part, last=last)

    def absorb(self, part: StepUpdate, *, last: bool | None = None) -> None:
        """Take a part of a step that arrived late, or without the end of the step; the step does not advance.

        ``last``: None for counts of the host. For those of a device, True if no more are on their way.
        """
        judged: Sequence[Judged] | None = None
        with self._lock:
            for builder in self._changes():
                self._lines.absorb(builder, part)
                if judged is None and self._turns is not None:
                    self._turns.note(builder.anomalies, part.seen, part.step, from_device=last is not None)
                    judged = self._turns.due() if last else ()
                self._write(builder, judged or ())
        self._hurry(judged or ())

    # The life of a run.

    def begin(self, facts: RunFacts, labels: Mapping[str, str]) -> None:
        """Take over the facts of a run before its first step. ``labels``: those that every series carries."""
        with self._lock:
            resolver = self._lines.begin(facts.family, self._frameworks.get(facts.framework))
            for builder in self._changes():
                self._describe(builder, facts, labels)
                for key, total in facts.totals.items():
                    for series in resolver.resolve(key):
                        builder.totals[series] = total

    def _describe(self, builder: SnapshotBuilder, facts: RunFacts, labels: Mapping[str, str]) -> None:
        builder.labels = {name: clip(value) for name, value in labels.items()}
        builder.framework, builder.family = facts.framework, facts.family
        info = {"algorithm": facts.algorithm, **facts.info, "trainer": facts.info.get("trainer") or facts.framework}
        builder.clear("rl_run_info")
        builder.set("rl_run_info", 1.0, *(clip(info.get(label, "")) for label in self.named["rl_run_info"].labels))
        builder.set("rl_world_size", facts.world_size or 1)
        builder.set("rl_ranks_covered", 1)
        if facts.gpus is not None:
            builder.set("rl_gpus", facts.gpus)
        builder.clear("rl_hyperparameter")
        for name, value in facts.hyperparameters.items():
            builder.set("rl_hyperparameter", value, name)
        if facts.steps_planned is not None:
            builder.set("rl_steps_planned", facts.steps_planned)
        if facts.step is not None:
            builder.set("rl_step", facts.step)
        if builder.get("rl_run_start_timestamp_seconds") is None:
            builder.set("rl_run_start_timestamp_seconds", self._clock())
        builder.set("rl_last_step_timestamp_seconds", self._clock())
        for metric in self._catalog:
            logged = any(facts.family in key.algorithms for key in metric.keys)
            if logged and metric.kind is Kind.COUNTER:
                builder.samples.setdefault(Series(metric), 0.0)
        if self._watch is not None and self._turns is not None:
            self._turns.clear()
            self._watch.begin(facts)
            self._folders = Folders()
            begin_conditions(builder, self._watch, self._folders)

    def enter(self, state: RunState, exception: str = "") -> None:
        """Move the run to ``state``, judge what waits, and record it.

        ``exception``: the class of the exception that ended the run.
        """
        judged: list[Judged] = []
        with self._lock:
            for builder in self._changes():
                if self._turns is not None:
                    step, cut_short = int(builder.get("rl_step") or 0), state.over and state is not RunState.FINISHED
                    # Whether a run that is cut short had hung is judged too: nobody else would say so.
                    turns, now = self._turns, self._clock()
                    judged += turns.cut_short(step, now, self._phase) if cut_short else turns.due()
                self._write(builder, judged)
                for known in RunState:
                    builder.set("rl_run_state", float(known is state), known.value)
                builder.clear("rl_run_exception_info")
                if exception:
                    builder.set("rl_run_exception_info", 1.0, clip(exception))
                if state is RunState.FAILED and self._watch is not None:
                    mark_symptoms(builder, [self._watch.of_failure()])
        self._urgent()
        if self.recorder is not None:
            self.recorder.state(state, exception)

    def settle(self) -> None:
        """Judge what came after the last step, as no other step will: a run often dies in the step of its fault."""
        if self._watch is None or self._turns is None:
            return
        judged: list[Judged] = []
        with self._lock:
            for builder in self._changes():
                judged += self._turns.last(int(builder.get("rl_step") or 0), self._clock())
                self._write(builder, judged)
                self._watch.checkpoints.decide()
                write_checkpoint(builder, self._watch.checkpoints.good, self._folders)
        self._hurry(judged)

    def saved(self, step: int) -> None:
        with self.changing("event"):
            with self._lock:
                if self._watch is not None:
                    self._watch.checkpoints.saved(step)
                for builder in self._changes():
                    builder.set("rl_last_checkpoint_step", step)
                    builder.set("rl_last_checkpoint_timestamp_seconds", self._clock())
            self._urgent()

    def folders(self, folders: Folders) -> None:
        with self.changing("event"), self._lock:
            self._folders = folders
            if self._watch is not None:
                for builder in self._changes():
                    write_checkpoint(builder, self._watch.checkpoints.good, folders)

    def _write(self, builder: SnapshotBuilder, judged: Sequence[Judged]) -> None:
        if judged and self._watch is not None:
            builder.samples[self._stall] = self._watch.stall_after("")
        for verdict, step, at in judged:
            write_verdict(builder, verdict, step, at, self._folders)

    def _hurry(self, judged: Sequence[Judged]) -> None:
        for turn in judged:
            if turn.verdict.critical:
                self._urgent()
                return

    # Errors, and the end.

    def guard(self, where: str) -> contextlib.AbstractContextManager[None]:
        return self.errors.guard(where)

    @contextlib.contextmanager
    def changing(self, where: str) -> Iterator[None]:
        """Guard a change, and note when it was made."""
        with self.errors.guard(where):
            yield
        self.changed_at = time.monotonic()

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
        """Take every wrapper off."""
        while self._undo:
            with self.guard("exit"):
                self._undo.pop()()

    def abandon(self) -> None:
        """Let go of the recording and of the lock in a forked child, which has none of the threads."""
        self.recorder = None
        self._lock, self._folds, self._logs = RLock(), False, False


class _Observing:
    """What `Feed.observing` returns. A step has two dozen, and a generator costs three times as much."""

    __slots__ = ("_feed", "_nested", "_signal", "_started")

    def __init__(self, feed: Feed, signal: str) -> None:
        self._feed = feed
        self._signal = signal

    def __enter__(self) -> None:
        self._nested, self._feed._observing = self._feed._observing, True
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Note how observing went, and what it cost. Only an error that ends the process goes on."""
        feed = self._feed
        feed._observing = self._nested
        if not self._nested:
            feed._overhead += time.perf_counter() - self._started
        if error is None:
            feed.signal(self._signal)
        elif isinstance(error, NotSeenError):
            feed.signal(self._signal, str(error))
        elif isinstance(error, Exception):  # the boundary: nothing of ours may reach a trainer
            # A message may hold anything; that of a KeyError is a name.
            kind = type(error).__name__
            text = f"{kind}: {error}" if isinstance(error, KeyError) else f"{kind}: see the log of the training"
            feed.signal(self._signal, text, error=True)
            feed.errors.add("tap", error)
        else:
            return False
        return True


class PhaseTimer:
    """A stack of open phases, and the seconds spent in each: those of an inner one are not part of the outer one.

    ``clock``: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0
        self._spent: dict[str, float] = {}

    @property
    def current(self) -> str:
        """Return the innermost open phase; empty between phases."""
        return self._open[-1] if self._open else ""

    def enter(self, name: str) -> None:
        self._account()
        self._open.append(name)

    def leave(self) -> None:
        self._account()
        self._open.pop()

    def take(self) -> dict[str, float]:
        """Return the seconds spent in each phase since the last call."""
        self._account()
        taken, self._spent = self._spent, {}
        return taken

    def _account(self) -> None:
        now = self._clock()
        if self._open:
            self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now
