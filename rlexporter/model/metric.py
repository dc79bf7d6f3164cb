"""Metrics: what can be measured, as the catalogue declares it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The Prometheus type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class RankScope(Enum):
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


_NAMESPACE = r"rlexporter|rl(?:_(?:eval|run|train))?"
_STATISTIC = (
    r"(?:(?:unmasked|per_token|per_sequence|region|low|high)_)?(?:mean|std|var|min|max|dist)|per_token|per_sequence"
)
_PARTS = re.compile(rf"({_NAMESPACE})_(.+?)(?:_({_STATISTIC}|coef|margin|chosen|rejected|accuracy))?")


def otlp_name(series: str) -> str:
    """Return the name of a series as OTLP carries it: with underscores for dots it is the Prometheus name.

    A dot stands behind the namespace (``rl``, ``rl.eval``, ``rl.run``, ``rl.train``, ``rlexporter``) and before what
    was computed of a quantity (``mean``, ``dist``, ``per_token``); it stands nowhere else.
    """
    found = _PARTS.fullmatch(series)
    if found is None:
        return series
    namespace, *rest = found.groups()
    return ".".join([namespace.replace("_", "."), *filter(None, rest)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """One line of the catalogue. Everything that is served, drawn or documented derives from it."""

    series: str
    """The Prometheus name."""
    kind: Kind
    group: Group
    help: str
    """What is measured: one or more sentences."""
    level: Level
    unit: str = ""
    """In words: ``nats``, ``tokens``. Empty: a pure number."""
    scope: RankScope = RankScope.GLOBAL
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
    otlp_name: str = field(init=False)
    """The name that OTLP carries: dots behind the namespace and before a statistic (``rl.kl.per_token``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "otlp_name", otlp_name(self.series))

    @property
    def signed(self) -> bool:
        """True for a histogram of values that can be negative."""
        return bool(self.bounds) and self.bounds[0] < 0


class Series(NamedTuple):
    """A metric and the values of its labels, in the order of ``metric.labels``."""

    metric: Metric
    labels: tuple[str, ...] = ()
