"""What adapters hand over, and to whom: the seam between trainers and the core.

Adapters depend on this file and not on the run, so that they can feed anything that has these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlexporter.model.histogram import Buckets
from rlexporter.model.metric import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What an adapter knows of a run when it begins."""

    algorithm: str = ""
    rank: int | None = None
    local_rank: int | None = None
    """The rank on its machine."""
    world_size: int | None = None
    run_name: str | None = None
    """Its name in the trainer's configuration, given by a person or a default."""
    output_dir: str | None = None
    """Where its checkpoints go."""
    resumed_from: str | None = None
    """The checkpoint that it continues."""
    info: Mapping[str, str] = field(default_factory=dict)
    """Further labels of ``rl_run_info``."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    steps_planned: int | None = None
    step: int | None = None
    """The step at which this process takes over: above 0 when a checkpoint was resumed; None: not known."""
    open_ended: bool = False
    """Nobody will say when the training is over: where the process ends in order, so does the run."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """Trainer totals that were restored with it, by log key: counters of this process start from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUpdate:
    """What an adapter saw in one step, before any framework averaged or filtered it."""

    step: int
    duration: float | None = None
    """Seconds, measured from the start of the step to its end."""
    seen: Mapping[Series, Buckets] = field(default_factory=dict)
    """Tensors, as exact counts with sums and extremes; what is not finite is counted in them."""
    undefined: Mapping[str, int] = field(default_factory=dict)
    """How many values of a metric were not given (None), by Prometheus name."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers that the trainer is about to average, by log key."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent in each phase since the last step."""
    overhead: float = 0.0
    """Seconds that looking at tensors has cost the training thread since the last update."""


class NotSeenError(Exception):
    """Says that this run does not have a signal: the reason, and no error."""


class Sink(Protocol):
    """Takes what an adapter sees of a run.

    Every method is called on the training thread, but for `guard`, which any thread may use. None of them raises an
    error of its own into the trainer except `observe`, which stands inside `observing` or `guard`. None of them waits
    for a device or keeps a tensor.
    """

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """Take one log line, and the step update that belongs to it; both become visible in one change."""

    def advance(self, update: StepUpdate) -> None:
        """Note that a step is done for which no log line follows."""

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""

    def observe(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        """Count values of this step in the metric with the Prometheus name ``name``.

        ``values``: a tensor, array or list of any shape; ``mask``: which of them count, of a shape that broadcasts to
        it; ``labels``: those of the metric, in its order. They become visible with the step.

        Raises:
            LookupError: no metric is called so, or has so many labels.
            TypeError, ValueError, RuntimeError: the values are no real numbers.
        """

    def undefined(self, name: str, count: int) -> None:
        """Count values of the metric ``name`` that were not given (None)."""

    def values(self, key: str, numbers: list[float]) -> None:
        """Take the numbers of this step that the trainer is about to average under a log key."""

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        """Say whether a signal can be seen in this run.

        ``reason``: why not, empty where it can be; ``error``: it should have been.
        """

    def observing(self, signal: str) -> AbstractContextManager[None]:
        """Let what is observed inside be this signal; where that fails, the signal is lost and nothing else.

        NotSeenError says that this run does not have it.
        """

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the time inside as that of a phase of the step."""

    def flush(self) -> None:
        """Bring what was counted on a device to safety before something that may fail."""

    def guard(self, where: str) -> AbstractContextManager[None]:
        """Keep errors inside away from the trainer: they are counted under ``where``, and logged once a kind."""

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the exporter is closed: what was wrapped is unwrapped."""


class TrainedRun(Protocol):
    """A run as the adapter of its trainer sees it. Only the training thread calls these."""

    @property
    def sink(self) -> Sink:
        """Where everything goes that is seen of it."""

    def prepare(self, facts: RunFacts) -> None:
        """Take over the facts of a run that may begin later."""

    def begin(self, facts: RunFacts) -> None:
        """Note that a training begins now, for the first time or again."""

    def end(self, error: BaseException | None = None) -> None:
        """Note that it has ended, by itself or by ``error``."""
