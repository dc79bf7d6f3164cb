"""The interface through which adapters of trainers feed the core.

Adapters depend on this file and not on the run, so that they can feed anything that has these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from rlexporter.model.checkpoint import Folders, GoodCheckpoints
from rlexporter.model.step import RunFacts, StepUpdate


class NotSeenError(Exception):
    """Reports that this run does not have a signal, with the reason. This is not an error."""


class Rollout(NamedTuple):
    """The completions of one rollout, as texts or conversations. All sequences are of one length."""

    prompts: Sequence[object]
    completions: Sequence[object]
    rewards: Mapping[str, Sequence[float]]
    """By reward function; NaN where it gave none."""
    totals: Sequence[float]
    """What was optimized."""


SAVE, STOP = "save", "stop"
"""The words of `on_critical`."""


class Orders(NamedTuple):
    """What `on_critical` asks a trainer for: a checkpoint, the end of the training; and why."""

    save: bool = False
    stop: bool = False
    why: str = ""


class Sink(Protocol):
    """Takes what an adapter sees of a run.

    Call every method on the training thread, except `guard`, which any thread may use. No method raises an error of
    its own into the trainer except `observe`, which must be called inside `observing` or `guard`. No method waits for
    a device or keeps a tensor.
    """

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """Take one log line and the step update that belongs to it; both become visible in one change."""

    def advance(self, update: StepUpdate) -> None:
        """Note the end of a step that has no log line."""

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""

    def folders(self, folders: Folders) -> None:
        """Note where the checkpoints of the run are now."""

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        """Count values of this step in the metric with the Prometheus name ``name``; they become visible with the step.

        ``values``: a tensor, array or list of any shape; ``mask``: true for the values that count, of a shape that
        broadcasts to that of ``values``; ``labels``: the values of the metric's labels, in its order.

        Raises:
            LookupError: no metric has this name and this number of labels.
            TypeError, ValueError, RuntimeError: the values are not real numbers.
        """

    def undefined(self, name: str, count: int) -> None:
        """Note that ``count`` values of the metric ``name`` were not given (None)."""

    def evaluated(self) -> None:
        """Note that an evaluation is over: what was seen in it belongs to the step before it, not to the next one."""

    def values(self, numbers: Mapping[str, list[float]]) -> None:
        """Take the ``numbers`` of this step that the trainer is about to average, by log key."""

    def completions(self, read: Callable[[], Rollout | None], *, done: bool = False) -> None:
        """Keep completions of this step for whoever asked to read some; ``read``, called only then, returns them.

        ``done``: True if the step that they were made for has ended already.
        """

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        """Say whether the signal ``name`` can be measured in this run.

        ``reason``: why not, empty if it can; ``error``: True if it was expected to be there.
        """

    def observing(self, signal: str) -> AbstractContextManager[None]:
        """Attribute what is observed inside the block to ``signal``; an error there costs only this signal.

        A NotSeenError inside says that this run does not have it.
        """

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the time inside the block as that of the phase ``name`` of the step."""

    def flush(self) -> None:
        """Start to copy counts from devices to the host, before something that may fail."""

    def guard(self, where: str) -> AbstractContextManager[None]:
        """Keep errors inside the block from the trainer: count them under ``where``, and log the first of each kind."""

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call ``undo``, which unwraps something, when the exporter is closed."""


class Brake(Protocol):
    """Says what `on_critical` asks for. Only the training thread calls it."""

    def orders(self, *, saves: str = ..., stops: str = ...) -> Orders:
        """Return what is asked for after the step that was judged last; each incident is asked about once.

        ``saves``, ``stops``: what the log says that is done then; empty for what cannot be done.
        """

    def obeyed(self, orders: Orders) -> None:
        """Note that the trainer does what was asked for, here or on another rank."""


class TrainedRun(Protocol):
    """A run as the adapter of its trainer sees it. Only the training thread calls these."""

    @property
    def sink(self) -> Sink:
        """Return the sink that takes everything seen of this run."""

    @property
    def brake(self) -> Brake:
        """Return what may stop this run."""

    @property
    def name(self) -> str:
        """Return the name of the run."""

    @property
    def attempt(self) -> int:
        """Return the number of times that the run was started."""

    @property
    def checkpoints(self) -> GoodCheckpoints:
        """Return what is known of its checkpoints."""

    def prepare(self, facts: RunFacts) -> None:
        """Take over the ``facts`` of a run that may begin later."""

    def begin(self, facts: RunFacts) -> None:
        """Note that a training with these ``facts`` begins now, for the first time or again."""

    def end(self, error: BaseException | None = None) -> None:
        """Note that the training has ended, by ``error`` or normally."""
