"""One run: what is fed into it, what it is called, which state it is in. Served by the exporter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from rlexporter.atomic_file import of_rank
from rlexporter.catalog import CATALOG
from rlexporter.config.settings import Settings
from rlexporter.model.metric import RunState
from rlexporter.model.sink import RunFacts, StepUpdate
from rlexporter.recording.writer import Recorder
from rlexporter.run import identity
from rlexporter.run import shutdown as process
from rlexporter.run.sink import Intake
from rlexporter.version import __version__


class Run(Intake):
    """The life of one run, from its name to its end. After the setup nothing here raises into a training loop.

    ``clock``: seconds since the epoch.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        super().__init__(settings, clock)
        self.state = RunState.STARTING
        self.training = False
        self._identity = identity.provisional(settings.run, None)
        self._facts = RunFacts()
        self._settled = False
        self._driven = False
        self._undo: list[Callable[[], None]] = []
        self._describe(self._facts)
        self.store.enter(self.state)

    @property
    def name(self) -> str:
        """The label ``run`` of every series."""
        return self._identity.name

    @property
    def rank(self) -> int:
        """The label ``rank``: as the trainer says, else as the settings do."""
        return self.settings.rank if self._facts.rank is None else self._facts.rank

    @property
    def secondary(self) -> bool:
        """Whether what is logged is rank 0's business: it is reduced over all ranks, or would be served twice."""
        return self.rank != 0

    @property
    def local_rank(self) -> int:
        """The rank on this machine."""
        return self.settings.local_rank if self._facts.local_rank is None else self._facts.local_rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._facts.world_size or self.settings.world_size

    @property
    def output_dir(self) -> str | None:
        """Where the checkpoints of the run go, if anybody said."""
        return self._facts.output_dir

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """Serve a log line: TRL's keys, or others, with numbers, None, NaN, arrays or tensors.

        ``step``: the step that it belongs to; without one each line that is no evaluation is a step. Never raises.
        """
        if self.state is RunState.STARTING and not self._driven:
            with self.guard("log"):
                self._introduce()
                self._enter(RunState.RUNNING)
        super().log(stats, step=step, update=update)

    def prepare(self, facts: RunFacts) -> None:
        """Take over the facts of a run that a trainer may begin later."""
        with self._change("event"):
            self._driven = True
            if not self._settled:
                self._identity = identity.provisional(self._given_name(facts), facts.output_dir)
            self._describe(facts)

    def begin(self, facts: RunFacts) -> None:
        """A training begins now, for the first time or again."""
        with self._change("event"):
            self._facts = facts
            self._driven, self.training = True, not facts.open_ended
            if not self._settled:
                self._settle(facts)
            self._describe(facts)
            self._introduce()
            self._enter(RunState.RUNNING)
            process.chain_sigterm()

    def end(self, error: BaseException | None = None) -> None:
        """The run has ended: by itself, by Ctrl-C or any SystemExit (stopped), or by another exception (failed)."""
        with self._change("event"):
            self.training = False
            with self.guard("tap"):  # after an error of the device its counts cannot be sent any more
                self._drain()
            with self.guard("event"):
                self.store.settle()
            process.unchain_sigterm()
            if not self.state.over:
                self._enter(*_outcome(error))

    def enter(self, state: RunState, exception: str = "") -> None:
        """The run is in this state, says somebody who knows of it from elsewhere. Never raises."""
        with self._change("event"):
            if state.over:
                self.store.settle()
            self._enter(state, exception)

    def exit(self, error: BaseException | None) -> None:
        """The process ends: a training that is still under way was stopped, whatever stopped it."""
        with self._change("exit"):
            cut_short = error is None and (self.training or self.state is RunState.STARTING)
            if cut_short and not self.state.over:
                self._enter(RunState.STOPPED)
            self.end(error)

    def preempt(self) -> None:
        """The process was told to end (SIGTERM)."""
        with self._change("exit"):
            if not self.state.over:
                self._enter(RunState.PREEMPTED)

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the exporter is closed: what was wrapped is unwrapped."""
        self._undo.append(undo)

    def record(self) -> None:
        """Begin to record, where that was asked for. Raises SetupError for a file that cannot be written."""
        if self.settings.record and self._recorder is None:
            path = str(of_rank(self.settings.record, self.rank))
            self._recorder = Recorder(path, lambda error: self.failed("record", error))

    def release(self) -> None:
        """Take every wrapper off, and end the recording."""
        while self._undo:
            with self.guard("exit"):
                self._undo.pop()()
        self._stop_recording()

    def _stop_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()

    def _enter(self, state: RunState, exception: str = "") -> None:
        self.state = state
        self.store.enter(state, exception)
        if self._recorder is not None:
            self._recorder.state(state, exception)

    def _introduce(self) -> None:
        if self._recorder is not None:
            self._recorder.meta(self.name, self._facts, CATALOG)

    def _settle(self, facts: RunFacts) -> None:
        self._settled = True
        self._identity = identity.settle(self._identity, self._given_name(facts), facts.output_dir, facts.resumed_from)
        with self.guard("identity"):
            if facts.output_dir and self.rank == 0:
                identity.keep(self._identity, facts.output_dir)

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
        self.store.begin(self._facts, labels)


def _outcome(error: BaseException | None) -> tuple[RunState, str]:
    if error is None:
        return RunState.FINISHED, ""
    stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
    return RunState.STOPPED if stopped else RunState.FAILED, type(error).__name__
