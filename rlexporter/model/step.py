"""What an adapter says of a run, and what it saw in a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlexporter.model.histogram import Histogram
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
    seen: Mapping[Series, Histogram] = field(default_factory=dict)
    """Tensors, as exact counts with sums and extremes; what is not finite is counted in them."""
    undefined: Mapping[str, int] = field(default_factory=dict)
    """How many values of a metric were not given (None), by Prometheus name."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers that the trainer is about to average, by log key."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent in each phase since the last step."""
    overhead: float = 0.0
    """Seconds that looking at tensors has cost the training thread since the last update."""
