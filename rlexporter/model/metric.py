"""The declaration of a metric (its name, type, unit, labels), and of the log keys of TRL and of others that feed it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The Prometheus type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class RankScope(Enum):
    """The ranks that a number covers: all of them (reduced already), or one."""

    GLOBAL = "global"
    RANK = "rank"


class Level(Enum):
    """The unit of training that one raw value belongs to."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    STEP = "step"
    RUN = "run"


class Group(Enum):
    """The section of docs and dashboards that a metric belongs to, in their order."""

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
    PREFERENCE = "Preference optimization"
    DATA = "Training on data: SFT, reward models"
    DISTILLATION = "Distillation"
    PIPELINE = "Asynchronous rollouts"
    CONDITION = "Conditions: what makes a run sick"
    TRUTH = "Truth: what a framework would hide"
    EXPORTER = "The exporter itself"


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a healthy run, in the unit of the metric; ``None`` is an open end."""

    low: float | None
    high: float | None
    source: str

    @property
    def text(self) -> str:
        """Return the range in words: ``0 to 0.2``, ``at least 0.5``; empty where both ends are open."""
        if self.low is None:
            return "" if self.high is None else f"at most {self.high:g}"
        if self.high is None:
            return f"at least {self.low:g}"
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a trainer's log line, and the algorithms that log it.

    ``rewards/{reward_function}/mean`` is a template: the text that matches the braces becomes the label of that name.
    """

    name: str
    algorithms: tuple[str, ...]
    only: bool = False
    """True for a name that others use for something else, such as ``accuracy``: only these algorithms know it."""


AS_IT_IS = "rl_logged_value"
"""The metric that serves a key which has none of its own, under the name that it was logged with."""


@dataclass(frozen=True, slots=True)
class FrameworkKey:
    """A key of a framework's log line. ``name`` may be a template, as that of `Key`."""

    name: str
    series: str
    """The Prometheus name of the metric that it feeds; empty for a key that is no metric, such as the step."""
    families: tuple[str, ...] = ()
    """The algorithms of TRL whose conditions apply to the runs that mean this by the key; empty for all runs."""
    scale: float = 1.0
    """The factor from the unit of the key to that of the metric: 0.001 for milliseconds."""
    nothing: float | None = None
    """The value that is logged where nothing is measured, such as a KL without a reference; it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework, and what is known of its log lines."""

    name: str
    """The label ``framework`` of its runs."""
    title: str
    keys: tuple[FrameworkKey, ...]
    marks: frozenset[str]
    """Keys that identify the framework; one is enough."""
    of_trl: bool = False
    """True if its trainers descend from TRL's: they log TRL's keys too, which tell the algorithm."""
    critic: frozenset[str] = frozenset()
    """Keys that show that a run trains a value function; one is enough."""
    source: str
    """The repository, release and files that names, units and estimators were read from."""


_NAMESPACE = r"rlexporter|rl(?:_(?:eval|run|train))?"
_STATISTIC = (
    r"(?:(?:unmasked|per_token|per_sequence|region|low|high)_)?(?:mean|std|var|min|max|dist)|per_token|per_sequence"
)
_PARTS = re.compile(rf"({_NAMESPACE})_(.+?)(?:_({_STATISTIC}|coef|margin|chosen|rejected|accuracy))?")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """An entry of the catalog. Everything that is served, drawn or documented derives from it."""

    series: str
    """The Prometheus name."""
    kind: Kind
    group: Group
    help: str
    """The description of the measurement: one or more sentences."""
    level: Level
    unit: str = ""
    """The unit in words: ``nats``, ``tokens``. Empty for a pure number."""
    scope: RankScope = RankScope.GLOBAL
    keys: tuple[Key, ...] = ()
    labels: tuple[str, ...] = ()
    healthy: Range | None = None
    reading: str = ""
    """The meaning of a rise or a fall."""
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, ascending, without the infinite one."""
    of: str = ""
    """The gauge whose value per step a histogram counts; NaN and infinities are counted under the gauge's name."""
    may_be_nonfinite: bool = False
    """True if NaN or infinities are no fault: healthy runs have them, or they are counted at their origin."""
    corrected: bool = False
    """True if modern PPO logs it too small, because it leaves slots empty: see ``rl_corrected_mean``."""
    initial: tuple[tuple[str, ...], ...] = ()
    """The label values that exist from the start, at 0: ``increase()`` misses the first count of a new series."""

    @property
    def otlp_name(self) -> str:
        """Return the name in OTLP; with underscores for its dots it is the Prometheus name again.

        Dots follow the namespace (``rl``, ``rl.eval``, ``rl.run``, ``rl.train``, ``rlexporter``) and precede the
        statistic (``mean``, ``dist``, ``per_token``); there are no others.
        """
        match = _PARTS.fullmatch(self.series)
        if match is None:
            return self.series
        namespace, *rest = match.groups()
        return ".".join([namespace.replace("_", "."), *filter(None, rest)])

    @property
    def short_name(self) -> str:
        """Return what `Exporter.observe` calls a histogram: ``policy_ratio`` for ``rl_policy_ratio_dist``."""
        return self.series.removeprefix("rl_").removesuffix("_dist")

    @property
    def signed(self) -> bool:
        """Return True for a histogram of values that can be negative."""
        return bool(self.bounds) and self.bounds[0] < 0


class Series(NamedTuple):
    """A metric and the values of its labels, in the order of ``metric.labels``."""

    metric: Metric
    labels: tuple[str, ...] = ()
