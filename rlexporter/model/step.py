"""The facts of a run and the updates of its steps, as adapters report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series

LAST_STEP = 2**53
"""The last whole number that a sample can hold exactly."""


def whole(step: object) -> int:
    """Return a step as the whole number that it is. Raises ValueError, or what `int` raises, for everything else."""
    number = -1 if isinstance(step, (str, bytes)) else int(step)  # type: ignore[call-overload]
    if not 0 <= number <= LAST_STEP:
        raise ValueError(f"a step is a whole number from 0 to 2**53, and not {str(step)[:40]}")
    return int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts of a run that an adapter knows when it begins."""

    algorithm: str = ""
    framework: str = ""
    """The name of the framework that trains: ``trl``, ``verl``... Empty for a loop of the user's own."""
    judged_as: str = ""
    """The algorithm of TRL whose conditions apply, where ``algorithm`` is one that only another framework has."""
    rank: int | None = None
    local_rank: int | None = None
    """The rank of the process on its machine."""
    world_size: int | None = None
    gpus: int | None = None
    """The number of GPUs, or other accelerators, that all ranks together train on; None if unknown."""
    run_name: str | None = None
    """The name in the trainer's configuration, given by the user or a default."""
    part: str = ""
    """What this process does of a run of several that each serve their own part; it is added to the name."""
    output_dir: str | None = None
    """The folder of the checkpoints."""
    resumed_from: str | None = None
    """The checkpoint that the run continues."""
    info: Mapping[str, str] = field(default_factory=dict)
    """Further labels of ``rl_run_info``."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    steps_planned: int | None = None
    step: int | None = None
    """The step at which this process starts: above 0 after a resume; None if unknown."""
    trimmed: bool = False
    """True if this is a log whose beginning is missing: its first step is not that of the run."""
    open_ended: bool = False
    """True if no event marks the end of the training: the run then ends when the process exits normally."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """The trainer's running totals at the start, by log key: counters of this process count from there."""

    @property
    def family(self) -> str:
        """Return the algorithm whose keys and conditions apply."""
        return self.judged_as or self.algorithm

    @property
    def resumed(self) -> bool:
        """Return True if the first step here is not the first one of the run."""
        return bool(self.step) or self.trimmed

    @property
    def groups(self) -> int:
        """Return the number of groups whose rewards a step sees: completions of one prompt, or single ones in PPO.

        It is 1 where the settings do not tell.
        """
        given = self.hyperparameters
        size = given.get("generation_batch_size") or given.get("batch_size")
        if not size:
            steps = given.get("steps_per_generation") or given.get("gradient_accumulation_steps") or 1
            size = given.get("per_device_train_batch_size", 0) * steps * (self.world_size or 1)
        in_group = given.get("num_generations") or (1 if self.family.startswith("ppo") else size)
        return max(1, int(size / in_group)) if in_group else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUpdate:
    """The observations of an adapter in one step, before any framework averaged or filtered them."""

    step: int
    duration: float | None = None
    """The seconds from the start of the step to its end."""
    seen: Mapping[Series, Histogram] = field(default_factory=dict)
    """The values of tensors as exact histograms, which also count NaN and infinities."""
    undefined: Mapping[str, int] = field(default_factory=dict)
    """The number of values that were not given (None), by Prometheus name."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The numbers that the trainer is about to average, by log key."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds spent in each phase since the last step."""
    overhead: float = 0.0
    """The seconds that observing has cost the training thread since the last update."""
