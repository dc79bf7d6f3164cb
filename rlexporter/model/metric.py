"""The nouns of the project, frozen: what can be measured, what is known now, what a step brought.

With `buckets` imported by everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rlexporter.model.histogram import Buckets


class SetupError(Exception):
    """Something a person has to change before the exporter can start: says what, where, and how."""


class Kind(Enum):
    """The Prometheus type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Scope(Enum):
    """Whose number it is: already reduced over all ranks, or one rank's own."""

    GLOBAL = "global"
    RANK = "rank"


class Level(Enum):
    """What one value is measured on, or averaged over, before anything else is done with it."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    STEP = "step"
    RUN = "run"


class Group(Enum):
    """The question a metric answers; docs and dashboards are cut along these, in this order."""

    RUN = "State of the run"
    PROGRESS = "Progress"
    REWARD = "Reward"
    KL = "KL divergence to the reference policy"
    ENTROPY = "Entropy"
    POLICY = "Policy update"
    ADVANTAGE = "Advantages"
    LOSS = "Losses"
    VALUE = "Value function"
    OPTIMIZER = "Optimizer"
    COMPLETION = "Completions and prompts"
    LOGPROB = "Log-probabilities"
    SAMPLING = "Sampler and trainer mismatch"
    SPEED = "Speed"
    EVALUATION = "Evaluation"
    PREFERENCE = "Preference optimisation"
    CONDITION = "Conditions: what makes a run sick"
    TRUTH = "Truth: what a framework would hide"
    EXPORTER = "The exporter itself"

    @property
    def measured(self) -> bool:
        """True where values come from a trainer or its tensors, so that one of them can be no number."""
        return self not in (Group.RUN, Group.PROGRESS, Group.SPEED, Group.CONDITION, Group.EXPORTER)


class RunState(str, Enum):
    """The life of a run, as ``rl_run_state{state}`` serves it: 1 for the state it is in, 0 for the others."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"

    @property
    def over(self) -> bool:
        """True once nothing more is expected from this ``train()``."""
        return self not in (RunState.STARTING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class Range:
    """Where a healthy run stays, in the unit of its metric; ``None`` is an open end."""

    low: float | None
    high: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a trainer's log line, and the algorithms that log it.

    ``rewards/{reward_function}/mean`` is a template: what stands in the braces becomes a label of that name.
    """

    name: str
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """One line of the catalogue. Everything that is served, drawn or documented derives from it."""

    name: str
    """Dotted, as OTLP carries it (``rl.kl.per_token``); with underscores it is the Prometheus name."""
    kind: Kind
    group: Group
    help: str
    """What is measured: one or more sentences."""
    level: Level
    unit: str = ""
    """In words: ``nats``, ``tokens``. Empty: a pure number."""
    scope: Scope = Scope.GLOBAL
    keys: tuple[Key, ...] = ()
    labels: tuple[str, ...] = ()
    healthy: Range | None = None
    reading: str = ""
    """What a rise or a fall means."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, without the infinite one."""
    of: str = ""
    """The gauge of which a histogram counts one value a step: what is not finite is counted under that name."""
    may_be_nonfinite: bool = False
    """NaN or infinite by construction in healthy runs, or counted where it comes from: never a fault by itself."""
    corrected: bool = False
    """Modern PPO takes it too small where it leaves slots of its statistics unwritten: see ``rl_corrected_mean``."""
    initial: tuple[tuple[str, ...], ...] = ()
    """Label values that exist from the start, at 0: ``increase()`` cannot see a counter that is born at 1."""
    series: str = field(init=False)
    """The Prometheus name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "series", self.name.replace(".", "_"))

    @property
    def signed(self) -> bool:
        """True for a histogram of values that can be negative."""
        return bool(self.bounds) and self.bounds[0] < 0


class Series(NamedTuple):
    """A metric and the values of its labels, in the order of ``metric.labels``."""

    metric: Metric
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class AnomalyCounts:
    """The values that were not finite, or not given at all: how many, by the Prometheus name of their metric."""

    nonfinite: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    undefined: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __bool__(self) -> bool:
        return bool(self.nonfinite or self.undefined)

    def add(self, other: AnomalyCounts) -> None:
        """Count those of ``other`` too."""
        for mine, theirs in ((self.nonfinite, other.nonfinite), (self.undefined, other.undefined)):
            for name, count in theirs.items():
                mine[name] += count


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known at one moment. Never changed: a writer makes a new one and swaps the reference.

    ``steps`` says from which step a sample is; ``totals`` holds the last reading of the trainers' running
    totals, from which counters of this process are made.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[Series, float] = field(default_factory=dict)
    steps: Mapping[Series, int] = field(default_factory=dict)
    buckets: Mapping[Series, Buckets] = field(default_factory=dict)
    totals: Mapping[Series, float] = field(default_factory=dict)

    @property
    def state(self) -> RunState | None:
        """In which the run is; None before anybody has said."""
        return next((each for each in RunState if self.value("rl_run_state", state=each.value)), None)

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sample of the Prometheus series ``name`` with these labels of its own; None where there is none."""
        for series, value in self.samples.items():
            if series.metric.series == name and dict(zip(series.metric.labels, series.labels, strict=True)) == labels:
                return value
        return None
