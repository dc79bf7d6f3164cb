"""Keeps the current state of a run: takes log lines, steps, events and what taps see.

Each is one change of `Current`, made under its lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial

from rlexporter.conditions.view import ASIDE
from rlexporter.conditions.watch import Judged, Turn, Turns, Watch
from rlexporter.model.checkpoint import Folders
from rlexporter.model.metric import Framework, Kind, Metric, Series
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.store.builder import SnapshotBuilder, begin_conditions, mark_symptoms, write_checkpoint, write_verdict
from rlexporter.store.current import Current
from rlexporter.store.keys import Resolver, clip
from rlexporter.store.log_lines import LogLines

_STEPS_KEPT = 64
"""The snapshots that wait for a reader, of some 100 kB each: he comes twice a second."""


class Store:
    """The state of one run.

    ``catalog``: the metrics that exist. ``max_keys``: the most keys beyond its fixed ones (unknown ones, names of
    reward functions and data sets) that a run may log; more are dropped and counted. ``clock``: seconds since the
    epoch. ``watch``: judges each step, if given. ``urgent``: called after a change that should leave the process at
    once: another state, a checkpoint, a critical condition that began. It is called on the thread that made the change.
    ``frameworks``: those other than TRL, by name, whose keys are known. ``guess``: returns the series that an unknown
    key of an unknown trainer seems to mean, or an empty string.
    """

    def __init__(
        self,
        catalog: Sequence[Metric],
        *,
        max_keys: int = 200,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        urgent: Callable[[], None] = lambda: None,
        frameworks: Mapping[str, Framework] | None = None,
        guess: Callable[[str, float], str] = lambda key, value: "",
    ) -> None:
        self._catalog = catalog
        self._frameworks = frameworks or {}
        self.named = {metric.series: metric for metric in catalog}
        """The catalog by Prometheus name."""
        self._histograms = {metric.short_name: metric for metric in catalog if metric.kind is Kind.HISTOGRAM}
        self._lines = LogLines(catalog, max_keys, clock, guess)
        self._watch = watch
        self._turns = None if watch is None else Turns(watch)
        self._urgent = urgent
        self._clock = clock
        self._record_seconds = 0.0
        self._unrecorded, self._records = deque[Callable[[], None]](), False
        self._steps: deque[Snapshot] | None = None
        self._step, self._stall = Series(self.named["rl_step"]), Series(self.named["rl_stall_after_seconds"])
        self._recording = Series(self.named["rlexporter_record_seconds_total"])
        self._phases = _phases(self.named["rl_phase"])
        self._phase = ""
        self._folders = Folders()
        zero = {Series(metric, labels): 0.0 for metric in catalog for labels in metric.initial}
        self._current = Current(Snapshot(samples=zero), self.named)

    def keep_steps(self) -> deque[Snapshot]:
        """Keep the snapshots of the newest steps for a reader on another thread, who takes them out."""
        self._steps = self._steps if self._steps is not None else deque(maxlen=_STEPS_KEPT)
        return self._steps

    @property
    def snapshot(self) -> Snapshot:
        """The state now; the same object until something changes. For any thread."""
        return self._current.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        """Put another state in place."""
        self._current.snapshot = snapshot

    @property
    def step(self) -> int:
        """The step of the run, 0 before its first."""
        return int(self._current.value(self._step))

    @property
    def waits(self) -> bool:
        """True if a step is not judged yet, as counts of it are on their way."""
        return bool(self._turns)

    def change(self, edit: Callable[[SnapshotBuilder], None]) -> None:
        """Make one change visible at once. ``edit`` may be called twice, on different snapshots."""
        self._current.change(edit)

    def begin(self, facts: RunFacts, labels: Mapping[str, str]) -> None:
        """Take over the facts of a run before its first step. ``labels``: those that every series carries."""
        with self._current.lock:
            resolver = self._lines.begin(facts.family, self._frameworks.get(facts.framework))
            self.change(lambda builder: self._begin(builder, facts, labels, resolver))

    def enter(self, state: RunState, exception: str = "") -> None:
        """Move the run to ``state``; ``exception``: the class of the exception that ended it."""
        judged: list[Judged] = []

        def edit(builder: SnapshotBuilder) -> None:
            judged.extend(self._at_the_end(int(builder.get("rl_step") or 0), state))
            self._write(builder, judged)
            for known in RunState:
                builder.set("rl_run_state", float(known is state), known.value)
            builder.clear("rl_run_exception_info")
            if exception:
                builder.set("rl_run_exception_info", 1.0, clip(exception))
            if state is RunState.FAILED and self._watch is not None:
                mark_symptoms(builder, [self._watch.of_failure()])

        self.change(edit)
        self._urgent()

    def advance(self, update: StepUpdate, *, awaits: bool = False) -> None:
        """Note that one step is done; ``awaits`` as in `record`."""
        self.record({}, update=update, awaits=awaits)

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""

        def edit(builder: SnapshotBuilder) -> None:
            builder.set("rl_last_checkpoint_step", step)
            builder.set("rl_last_checkpoint_timestamp_seconds", self._clock())

        with self._current.lock:
            if self._watch is not None:
                self._watch.checkpoints.saved(step)
            self.change(edit)
        self._urgent()

    def folders(self, folders: Folders) -> None:
        """Note where the checkpoints of the run are now."""
        with self._current.lock:
            self._folders = folders
            watch = self._watch
            if watch is not None:
                self.change(lambda builder: write_checkpoint(builder, watch.checkpoints.good, folders))

    def tap(self, metric: Metric) -> None:
        """Feed ``metric`` by taps from now on, and not by log lines."""
        self._lines.tapped.add(metric.series)

    def absorb(self, part: StepUpdate, *, last: bool | None = None) -> None:
        """Take a part of a step that arrived late, or without the end of the step; the step does not advance.

        ``last``: None for counts of the host. For those of a device, True if no more are on their way.
        """
        judged: list[Judged] | None = None

        def edit(builder: SnapshotBuilder) -> None:
            nonlocal judged
            self._lines.absorb(builder, part)
            if judged is None and self._turns is not None:
                self._turns.note(builder.anomalies, part.seen, part.step, from_device=last is not None)
                judged = self._turns.due() if last else []
            self._write(builder, judged or ())

        self.change(edit)
        self._hurry(judged or ())

    def settle(self) -> None:
        """Judge what came after the last step, as no other step will: a run often dies in the step of its fault."""
        judged: list[Judged] = []
        watch, turns = self._watch, self._turns
        if watch is None or turns is None:
            return

        def edit(builder: SnapshotBuilder) -> None:
            judged.extend(turns.last(int(builder.get("rl_step") or 0), self._clock()))
            self._write(builder, judged)
            watch.checkpoints.decide()
            write_checkpoint(builder, watch.checkpoints.good, self._folders)

        self.change(edit)
        self._hurry(judged)

    def phase(self, name: str) -> None:
        """Note that the phase ``name`` is under way; empty: none is."""
        samples: Mapping[Series, float] = self._phases.get(name) or self._phases[""]
        if self._watch is not None and name in ASIDE:
            samples = {**samples, self._stall: self._watch.stall_after(name)}
        if self._watch is not None and self._phase in ASIDE and name not in ASIDE:
            self._watch.aside_over(self._clock())
        self._phase = name
        self._current.phase(samples)

    def signal(self, name: str, reason: str, cause: str) -> None:
        """Note if a signal can be measured; ``reason``: why not, empty if it can; ``cause``: the kind of reason."""

        def edit(builder: SnapshotBuilder) -> None:
            builder.set("rl_signal_available", float(not reason), name)
            builder.clear("rl_signal_unavailable_info", name)
            builder.reasons.pop(name, None)
            if reason:
                builder.set("rl_signal_unavailable_info", 1.0, name, cause)
                builder.reasons[name] = clip(reason)

        self.change(edit)

    def renew_lock(self) -> None:
        """Make a new lock in a forked child, since no thread is there to release one that the parent held."""
        self._current.renew_lock()

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
        """Record one log line and its step update as one change.

        ``logs`` is read once, never kept or changed. Without a ``step`` each line is a step unless it is an evaluation.
        ``served``: True if this rank serves the values; ``timed``: False if the clock does not tell when it was logged.
        ``awaits``: True if counts of the step are on their way from a device: it is served, and judged with them.
        A line of a signal handler that has interrupted a line is recorded after it.
        """
        with self._current.lock:
            if self._records:
                later = partial(self._record, logs, step, update, served=served, timed=timed, awaits=awaits)
                self._unrecorded.append(later)
                return
            self._records = True
            try:
                self._record(logs, step, update, served=served, timed=timed, awaits=awaits)
                while self._unrecorded:
                    self._unrecorded.popleft()()
            finally:
                self._records = False

    def _record(
        self,
        logs: Mapping[str, object],
        step: int | None,
        update: StepUpdate | None,
        *,
        served: bool,
        timed: bool,
        awaits: bool,
    ) -> None:
        started = time.perf_counter()
        judged: list[Judged] | None = None

        def edit(builder: SnapshotBuilder) -> None:
            nonlocal judged
            at = self._lines.write(builder, line, step, update)
            builder.samples[self._recording] = self._record_seconds
            if judged is None and self._turns is not None:  # a repeated edit takes what was judged: a step counts once
                turn = Turn(builder.anomalies, line.judged, update, at, self._clock(), timed)
                turns = self._turns
                judged = turns.evaluation(turn) if line.prefix else turns.take(turn, awaits=awaits)
            self._write(builder, judged or ())
            if line.prefix and not builder.get("rl_steps_total") and builder.get("rl_run_state", "starting"):
                builder.clear("rl_stall_after_seconds")  # who evaluates without training owes nobody a step

        line = self._lines.read(logs, update, served=served)
        self.change(edit)
        if self._steps is not None:
            self._steps.append(self._current.unphased)
        self._hurry(judged or ())
        self._record_seconds += time.perf_counter() - started

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

    def targets(self, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """Return the series that ``key`` feeds in a line with the keys ``line``; empty if there is no room for it.

        The snapshot does not change before the next line is recorded.
        """
        with self._current.lock:
            return self._lines.targets(key, line)

    def _at_the_end(self, step: int, state: RunState) -> list[Judged]:
        """Judge what waits; and if the run is cut short, whether it had hung: else nobody would be told of it."""
        if self._turns is None:
            return []
        if state.over and state is not RunState.FINISHED:
            return self._turns.cut_short(step, self._clock(), self._phase)
        return self._turns.due()

    def _write(self, builder: SnapshotBuilder, judged: Sequence[Judged]) -> None:
        if judged and self._watch is not None:
            builder.samples[self._stall] = self._watch.stall_after("")
        for verdict, step, at in judged:
            write_verdict(builder, verdict, step, at, self._folders)

    def _hurry(self, judged: Sequence[Judged]) -> None:
        if any(turn.verdict.critical for turn in judged):
            self._urgent()

    def _begin(self, builder: SnapshotBuilder, facts: RunFacts, labels: Mapping[str, str], resolver: Resolver) -> None:
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
        for key, total in facts.totals.items():
            for series in resolver.resolve(key):
                builder.totals[series] = total


def _phases(metric: Metric) -> dict[str, dict[Series, float]]:
    """Return the samples of each phase that may be under way, by its name; of none under an empty one."""
    names = [name for (name,) in metric.initial]
    return {name: {Series(metric, (phase,)): float(phase == name) for phase in names} for name in ("", *names)}
