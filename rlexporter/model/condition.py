"""What can be wrong with a run, as the catalogue declares it: frozen, and without any judgement of its own.

A condition is one number of a step beyond one limit in k of its last n observations. What the number is says a
`Signal`, what the limit is measured against is a `Baseline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """What an alert asks for: a person now, a look today, nothing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Family(str, Enum):
    """The fault that an alert names. Alerts of one family stand in for each other."""

    NONFINITE = "NONFINITE"
    CRASH = "CRASH"
    STALL = "STALL"
    SLOW = "SLOW"
    POLICY_STEP = "POLICY_STEP"
    KL_HIGH = "KL_HIGH"
    KL_NEGATIVE = "KL_NEGATIVE"
    ENTROPY_LOW = "ENTROPY_LOW"
    ENTROPY_HIGH = "ENTROPY_HIGH"
    GRAD = "GRAD"
    GRAD_DEAD = "GRAD_DEAD"
    VALUE = "VALUE"
    REWARD_FLAT = "REWARD_FLAT"
    REWARD_DROP = "REWARD_DROP"
    REWARD_JUMP = "REWARD_JUMP"
    PLATEAU = "PLATEAU"
    TRUNCATION = "TRUNCATION"
    LENGTH = "LENGTH"
    KL_COEF = "KL_COEF"
    LR = "LR"
    KEYS = "KEYS"
    ADVANTAGE = "ADVANTAGE"
    EXPORTER = "EXPORTER"

    @property
    def label(self) -> str:
        """As the alerts carry it."""
        return self.value.lower()


class Baseline(Enum):
    """What the number of a limit means."""

    FIXED = "in the unit of the metric"
    START = "times the median of the run's own first 5 values"
    FIRST = "times the 90th percentile of the run's own first 30 values"
    P90 = "times the 90th percentile of the run's own last 50 values, without the newest 5"
    RECENT = "times the median of the run's own last 30 values, without the newest 2"
    PREVIOUS = "times the value before"
    LEVEL = (
        "spreads below the run's own level: median and median absolute deviation of the last 50 without the newest 10"
    )

    @property
    def relative(self) -> bool:
        """Measured with the run's own past."""
        return self is not Baseline.FIXED

    @property
    def settles(self) -> bool:
        """Whether a limit that was measured once stays as it is."""
        return self in (Baseline.FIXED, Baseline.START, Baseline.FIRST)


class Read(Enum):
    """How a number is read from what is known of a series in one step."""

    VALUE = "the value"
    MEAN = "the mean of what was seen"
    MINUS_MEAN = "minus the mean of what was seen"
    SPREAD = "largest minus smallest of what was seen"
    SHARE = "the share of what was seen that lies outside two bounds"
    DERIVED = "computed from other signals"


@dataclass(frozen=True, slots=True)
class Source:
    """One place where a signal can be read. ``series``: a Prometheus name of the catalogue.

    ``variant`` says what kind of number it is, where limits depend on that: an estimator, a unit. ``algorithms``:
    those for which the series means it; empty for all.
    """

    series: str
    read: Read = Read.VALUE
    variant: str = ""
    algorithms: tuple[str, ...] = ()
    outside: tuple[float, float] = (0.0, 0.0)
    """For `Read.SHARE`: the bounds of the histogram between which values are well."""

    @property
    def derived(self) -> bool:
        """Computed from other signals; ``series`` is then the name of the function."""
        return self.read is Read.DERIVED


@dataclass(frozen=True, slots=True)
class Signal:
    """A number that a step brings, whatever the trainer calls it. The first source that has it is read."""

    name: str
    unit: str
    sources: tuple[Source, ...]
    of: str = ""
    """The signal that a derived one is computed from: it has the same variant, and is read at the same series."""
    after: tuple[str, ...] = ()
    """Further signals that a derived one is computed from."""


@dataclass(frozen=True, slots=True)
class Limit:
    """From where on, how often, and how bad. ``value``: one number, or one by variant of the signal.

    ``k_of_n``, beyond the limit in k of the last n observations. A median of n values beyond it is the same as
    more than half of them.
    """

    severity: Severity
    value: float | Mapping[str, float]
    k_of_n: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """One way in which a run is sick, or, as information, well."""

    name: str
    alert: str
    family: Family
    signal: str
    limits: tuple[Limit, ...]
    summary: str
    """One static sentence, for the alert."""
    meaning: str
    """What was seen, and why it matters."""
    causes: tuple[str, ...] = ()
    """What usually causes it, the likeliest first."""
    remedies: tuple[str, ...] = ()
    """What to try, with settings by their TRL names."""
    source: str = ""
    """Where the limit comes from."""
    below: bool = False
    baseline: Baseline = Baseline.FIXED
    floor: float | Mapping[str, float] = 0.0
    """A relative limit is never nearer to 0 than this, in the unit of the signal."""
    min_observations: int = 0
    """Observations of the signal before it is judged."""
    algorithms: tuple[str, ...] = ()
    """Those to which it applies; empty for all."""
    related: tuple[str, ...] = ()
    """Series to look at beside the signal's own."""

    def applies(self, algorithm: str) -> bool:
        """Whether a run of this algorithm can have it."""
        return not self.algorithms or algorithm in self.algorithms
