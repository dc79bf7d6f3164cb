"""Declarations of the conditions that a run can be in.

All of it is frozen data; `rlexporter.conditions` evaluates conditions. One holds when one number of a step (a `Signal`)
was beyond a limit in k of its last n observations. The `Baseline` says what the limit is measured against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """The response that an alert asks for: a person now, a look today, or nothing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Family(str, Enum):
    """The fault that an alert names. Alerts of one family report the same fault."""

    NONFINITE = "NONFINITE"
    CRASH = "CRASH"
    STALL = "STALL"
    DATA = "DATA"
    OBJECTIVE = "OBJECTIVE"
    OPTIMIZER = "OPTIMIZER"
    WEIGHTS = "WEIGHTS"
    STORM = "STORM"
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
    ADVANTAGE = "ADVANTAGE"
    EVALUATION = "EVALUATION"
    EXPORTER = "EXPORTER"

    @property
    def label(self) -> str:
        """Return the value of the label ``family`` on alerts."""
        return self.value.lower()


class Baseline(Enum):
    """The reference that the number of a limit is measured against."""

    FIXED = "in the unit of the metric"
    START = "times the median of the run's own first 5 values"
    P90 = "times the 90th percentile of those of the run's own last 50 values that are not 0, without the newest 5"
    RECENT = "times the median of the run's own last 30 values, without the newest 2"
    BEFORE = "times the median of 30 of the run's own values, without the newest 20"
    PREVIOUS = "times the value before"

    @property
    def relative(self) -> bool:
        """Return True if limits are relative to the run's own past."""
        return self is not Baseline.FIXED

    @property
    def settles(self) -> bool:
        """Return True if a limit never changes once it has been measured."""
        return self in (Baseline.FIXED, Baseline.START)


class Read(Enum):
    """The ways to read one number from a series in one step."""

    VALUE = "the value"
    MEAN = "the mean of what was seen"
    MINUS_MEAN = "minus the mean of what was seen"
    SPREAD = "largest minus smallest of what was seen"
    SHARE = "the share of what was seen that lies outside two bounds"
    DERIVED = "computed from other signals"


@dataclass(frozen=True, slots=True)
class Source:
    """A place where a signal can be read. ``series``: a Prometheus name of the catalog.

    ``variant``: the kind of number (an estimator, a unit), where limits depend on it. ``algorithms``: those whose
    trainers give the series this meaning; empty for all.
    """

    series: str
    read: Read = Read.VALUE
    variant: str = ""
    algorithms: tuple[str, ...] = ()
    outside: tuple[float, float] = (0.0, 0.0)
    """For `Read.SHARE`: the bounds of the histogram between which values are healthy."""
    reads: tuple[str, ...] = ()
    """For `Read.DERIVED`: the series and signals of which a step must have one; it is asked in every step without."""

    @property
    def derived(self) -> bool:
        """Return True if a function computes it from other signals; ``series`` is then the name of that function."""
        return self.read is Read.DERIVED


@dataclass(frozen=True, slots=True)
class Signal:
    """A number per step, whatever the trainer calls it. It is read at the first source that has a value."""

    name: str
    unit: str
    sources: tuple[Source, ...]
    of: str = ""
    """The main input of a derived signal, which takes over its variant and its series."""
    after: tuple[str, ...] = ()
    """Further inputs of a derived signal."""
    rests: bool = False
    """True if it counts anomalies, and is 0 in each step that has none."""
    window: int = 1
    """The newest observations that one value is computed from, at most."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold with its severity. ``value``: one number, or one for each variant of the signal.

    ``k_of_n``: the condition holds when k of the last n observations are beyond ``value``. With k just above n/2 this
    is the same as a median of n beyond it.
    """

    severity: Severity
    value: float | Mapping[str, float]
    k_of_n: tuple[int, int] = (1, 1)
    learning: str = ""
    """What explains a value beyond it: a name in `rlexporter.conditions.signals.ALLOWANCES`, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """A way in which a run is unhealthy; with the severity INFO also a good sign."""

    name: str
    alert: str
    family: Family
    signal: str
    limits: tuple[Limit, ...]
    summary: str
    """A sentence for the alert, without templates."""
    about: str = ""
    """The same as ``summary`` where it is known what it is about, which stands for {subject}."""
    below: bool = False
    baseline: Baseline = Baseline.FIXED
    floor: float | Mapping[str, float] = 0.0
    """The lowest value of a relative upper limit, in the unit of the signal."""
    min_observations: int = 0
    """The observations of the signal that must precede the first judgment."""
    algorithms: tuple[str, ...] = ()
    """The algorithms that it applies to; empty for all."""
    related: tuple[str, ...] = ()
    """Further series to look at."""
    foretold_by: tuple[str, ...] = ()
    """The conditions that are its symptoms although they may be certain before it is."""
    level: str = ""
    """The signal whose level says when it is over, where that is not the one that is judged."""
    stops: bool = True
    """Whether `on_critical` is for it unless told otherwise: not where too few healthy runs have shown the number."""

    def applies(self, algorithm: str) -> bool:
        """Return True if the condition applies to a run of ``algorithm``."""
        return not self.algorithms or algorithm in self.algorithms

    def says(self, subject: str) -> str:
        """Return the sentence for an alert, with what it is about where that is known (empty: it is not)."""
        return self.about.format(subject=subject) if subject and self.about else self.summary
