"""The run: its name, its state, its settings, and the feed that takes its data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rlexporter.atomic_file import of_rank
from rlexporter.catalog import buckets
from rlexporter.conditions.watch import watch
from rlexporter.config import mapping
from rlexporter.config.settings import MAIN, Settings
from rlexporter.feed.feed import Feed
from rlexporter.feed.keys import clip
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.checkpoint import GoodCheckpoints
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import ON_CRITICAL, RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.run import identity, shutdown
from rlexporter.run.brake import Brake
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.status.completions import Completions


class Run:
    """The life of one run in this process, from its name to its end: a `TrainedRun` of `rlexporter.model.sink`.

    ``clock``: seconds since the epoch. ``begins``: called before a training begins; ``urgent``: after what should leave
    the process at once, as `Feed` says; ``ended``: called after `end`, but not after `exit`. After the setup
    nothing here raises into a training loop. The training thread calls everything but `current`, which any thread may,
    and what a signal or the end of the process calls: `preempt`, `exit`.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        *,
        begins: Callable[[RunFacts], None] = lambda _: None,
        urgent: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        """The clock; what follows a log sets one that tells when each line was written."""
        self.note: Callable[[], None] = lambda: None
        """Takes this moment into the curves of the status page, which else have two a second; for a log that is read
        faster. It belongs to whoever serves the run."""
        self.state = RunState.STARTING
        self.training = False
        self.watch = watch(settings.thresholds)
        self.feed = Feed(
            mapping.catalog(buckets.catalog(settings.buckets), settings.map),
            max_keys=settings.max_keys,
            clock=lambda: self.clock(),
            watch=self.watch,
            urgent=urgent,
            frameworks=FRAMEWORKS,
            guess=mapping.guessed,
            stepping=shutdown.chain_sigterm,
        )
        self.errors = self.feed.errors
        self.brake = Brake(settings, self.feed)
        self.completions: Completions | None = None
        """The completions of the newest rollout, if the settings ask for some."""
        if settings.completions:
            from rlexporter.status.completions import Completions

            self.completions = Completions(settings.completions)
            self.feed.keep_rollout = self.completions.see
        self._begins = begins
        self._ended = ended
        self._identity = identity.provisional(settings.run, None)
        self._facts = RunFacts()
        self._settled = self._driven = False
        self._shown: tuple[Snapshot, Snapshot] | None = None  # the last snapshot, and its part that is this rank's own
        self._describe(self._facts)
        self.feed.enter(self.state)

    @property
    def sink(self) -> Feed:
        """Return what takes everything that is seen of this run."""
        return self.feed

    @property
    def name(self) -> str:
        """Return the label ``run`` of every series: the name of the run, and of the part of it that is here."""
        return f"{self._identity.name} {self._facts.part}".rstrip()

    @property
    def known_as(self) -> str:
        """Return the name to tell a person, which all that is served has.

        It is "" while it depends on whether the run resumes a checkpoint.
        """
        depends = self._identity.assumed and not self._settled
        return "" if depends or clip(self.name) != self.feed.snapshot.labels["run"] else self.name

    @property
    def rank(self) -> int:
        """Return the label ``rank``: that of the trainer, else that of the settings."""
        return self.settings.rank if self._facts.rank is None else self._facts.rank

    @property
    def local_rank(self) -> int:
        """Return the rank on this machine."""
        return self.settings.local_rank if self._facts.local_rank is None else self._facts.local_rank

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self._facts.world_size or self.settings.world_size

    @property
    def output_dir(self) -> str | None:
        """Return the folder of the checkpoints; None if unknown."""
        return self._facts.output_dir

    @property
    def attempt(self) -> int:
        return self._identity.attempt

    @property
    def checkpoints(self) -> GoodCheckpoints:
        return self.watch.checkpoints.good

    @property
    def serves(self) -> bool:
        """Return True if this rank serves: rank 0 always, others if the settings ask for it."""
        return self.rank == 0 or self.settings.ranks != MAIN

    def current(self) -> Snapshot:
        """Return what is served now, with the counts that have arrived from devices; on ranks above 0 only their own.

        Any thread may call this.
        """
        with self.errors.guard("scrape"):
            self.feed.fold()
        snapshot = self.feed.snapshot
        if self.rank == 0:
            return snapshot
        if self._shown is None or self._shown[0] is not snapshot:
            from rlexporter.run import rank_view

            self._shown = (snapshot, rank_view.own(snapshot, self.settings.ranks))
        return self._shown[1]

    def log(self, stats: Mapping[str, object], step: int | None = None) -> None:
        """Take a log line. What comes first, a line or a tensor, starts the run if no adapter drives it."""
        if self.state is RunState.STARTING:
            self._start("log")
        self.feed.log(stats, step)
        if self.settings.on_critical and not self._driven:
            self.brake.obeyed(self.brake.orders(saves="", stops="sets should_stop"))

    def observe(self, name: str, values: Any, mask: Any = None, **labels: str) -> None:
        """Count ``values`` in the histogram ``name``, as `Feed.observe_at_once` does.

        Raises SetupError for a name or labels that no histogram has, in a loop of the user's own before its first step.
        """
        try:
            series = self.feed.histogram(name, labels)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing else of ours may reach a loop
            own = isinstance(error, LookupError) and not self._driven
            if own and not self.feed.snapshot.value("rl_steps_total"):
                raise SetupError(str(error)) from None
            self.errors.add("observe", error)
            return
        if self.state is RunState.STARTING:
            self._start("observe")
        self.feed.observe_at_once(series, values, mask)

    def prepare(self, facts: RunFacts) -> None:
        with self.feed.changing("event"):
            self._driven = True
            if not self._settled:
                self._identity = identity.provisional(self._given_name(facts), facts.output_dir)
            self._describe(facts)

    def begin(self, facts: RunFacts) -> None:
        with self.errors.guard("event"):
            self._begins(facts)
        with self.feed.changing("event"):
            self._facts = facts
            self.brake.begin()
            self._driven, self.training = True, not facts.open_ended
            if not self._settled:
                self._settle(facts)
            self._describe(facts)
            self._introduce()
            self._enter(RunState.RUNNING)
            shutdown.chain_sigterm()

    def end(self, error: BaseException | None = None) -> None:
        """Note that the run has ended: by itself, by Ctrl-C or sys.exit (stopped), or by another exception (failed)."""
        self._end(error)
        with self.errors.guard("event"):
            self._ended()

    def _end(self, error: BaseException | None) -> None:
        self.feed.bring_in()
        with self.feed.changing("event"):
            self.training = False
            with self.errors.guard("tap"):  # after an error of the device its counts cannot be sent any more
                self.feed.drain()
            with self.errors.guard("event"):
                self.feed.fold()
                self.feed.settle()
            shutdown.unchain_sigterm()
            if self.state.over:
                return
            if error is not None:
                stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
                self._enter(RunState.STOPPED if stopped else RunState.FAILED, type(error).__name__)
            elif self.brake.stops:
                self._enter(RunState.STOPPED, ON_CRITICAL)
            else:
                self._enter(RunState.FINISHED)

    def enter(self, state: RunState, exception: str = "") -> None:
        """Take over a ``state`` that comes from elsewhere, such as a recording. Never raises."""
        with self.feed.changing("event"):
            if state.over:
                self.feed.settle()
            self._enter(state, exception)

    def exit(self, error: BaseException | None) -> None:
        """Note that the process ends: a training that is still under way was stopped, whatever stopped it."""
        with self.feed.changing("exit"):
            cut_short = error is None and (self.training or self.state is RunState.STARTING)
            if cut_short and not self.state.over:
                self._enter(RunState.STOPPED)
            self._end(error)

    def preempt(self) -> None:
        """Note that the process was told to end (SIGTERM)."""
        self.feed.bring_in()
        with self.feed.changing("exit"):
            if not self.state.over:
                self._enter(RunState.PREEMPTED)

    def record(self) -> None:
        """Begin to record if the settings ask for it. Raises SetupError for a file that cannot be written."""
        if self.settings.record and self.feed.recorder is None:
            from rlexporter.recording.writer import Recorder

            path = str(of_rank(self.settings.record, self.rank))
            self.feed.recorder = Recorder(path, partial(self.errors.add, "record"))

    def stop_recording(self) -> None:
        recorder, self.feed.recorder = self.feed.recorder, None
        if recorder is not None:
            recorder.close()

    def close(self) -> None:
        """Take every wrapper off, and end the recording."""
        self.feed.close()
        self.stop_recording()

    def abandon(self) -> None:
        """Detach from the parent in a forked child: nothing that the child logs is recorded."""
        self.feed.abandon()

    def _enter(self, state: RunState, exception: str = "") -> None:
        self.state = state
        self.feed.enter(state, exception)

    def _start(self, place: str) -> None:
        if not self._driven:
            with self.errors.guard(place):
                self._introduce()
                self._enter(RunState.RUNNING)

    def _introduce(self) -> None:
        if self.feed.recorder is not None:
            self.feed.recorder.meta(self.name, self._facts, self.feed.named.values())

    def _settle(self, facts: RunFacts) -> None:
        told, self._settled = self.known_as, True
        self._identity = identity.settle(self._identity, self._given_name(facts), facts.output_dir, facts.resumed_from)
        with self.errors.guard("identity"):
            if facts.output_dir and self.rank == 0:
                identity.keep(self._identity, facts.output_dir)
        if self.serves and self.name != told:
            shutdown.say(f"this is run {self.name}")

    def _given_name(self, facts: RunFacts) -> str | None:
        return self.settings.run or identity.given_name(facts.run_name, facts.output_dir)

    def _describe(self, facts: RunFacts) -> None:
        self._facts = facts
        info = {
            "attempt": str(self._identity.attempt),
            "world_size": str(self.world_size),
            "rank_scope": "all" if self.world_size == 1 else "rank",
            "torch": str(getattr(sys.modules.get("torch"), "__version__", "")),
            "rlexporter": __version__,
            **facts.info,
        }
        algorithm = self.settings.algorithm or facts.algorithm or "custom"
        labels = {"run": self.name, "rank": str(self.rank), **self.settings.labels}
        self._facts = replace(facts, algorithm=algorithm, info=info, world_size=self.world_size)
        self.feed.serves_logs = self.rank == 0
        self.feed.begin(self._facts, labels)
