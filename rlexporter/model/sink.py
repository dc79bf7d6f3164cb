"""What an adapter hands over: the facts of a run, and what it saw in a step. The seam between trainers and the core.

Adapters depend on this file and not on the exporter, so that they can be fed into anything that has these methods.
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
    """A signal that this run does not have: the reason, and no error."""


class Feed(Protocol):
    """What an adapter feeds. None of these raises an error of its own, but for `start`."""

    def start(self, *, fallback: bool = False) -> object:
        """Serve. ``fallback``: where the port is taken, move to a free one instead of raising SetupError."""

    def prepare(self, facts: RunFacts) -> None:
        """Facts of a run that may begin later."""

    def begin(self, facts: RunFacts) -> None:
        """A training begins now."""

    def end(self, error: BaseException | None = None) -> None:
        """It has ended, by itself or by ``error``."""

    def log(self, stats: Mapping[str, object], *, step: int | None = None, update: StepUpdate | None = None) -> None:
        """One log line, and the step update that belongs to it."""

    def advance(self, update: StepUpdate) -> None:
        """One step is done."""

    def see(self, name: str, values: Any, mask: Any = None, labels: tuple[str, ...] = ()) -> None:
        """Values of the metric with this Prometheus name, seen in this step. Raises what cannot be counted."""

    def undefined(self, name: str, count: int) -> None:
        """So many values of this metric were not given."""

    def values(self, key: str, numbers: list[float]) -> None:
        """Numbers that the trainer is about to average under this log key."""

    def signal(self, name: str, reason: str = "", *, error: bool = False) -> None:
        """Whether a signal can be seen in this run; ``reason``: why not; ``error``: it should have been."""

    def seeing(self, signal: str) -> AbstractContextManager[None]:
        """What is looked at inside is this signal; where that fails, the signal is lost and nothing else.

        NotSeenError says that this run does not have it.
        """

    def phase(self, name: str) -> AbstractContextManager[None]:
        """The time inside is that of this phase."""

    def flush(self) -> None:
        """Bring what was counted on a device to safety before something that may fail."""

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when the exporter is closed: what was wrapped is unwrapped."""

    def saved(self, step: int) -> None:
        """A checkpoint was written."""

    def guard(self, where: str) -> AbstractContextManager[None]:
        """Errors inside are counted and logged once, and go no further."""
