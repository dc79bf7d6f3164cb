"""Declarations of the conditions that a run can be in.

All of it is frozen data; `rlexporter.conditions` declares and evaluates conditions. One holds when one number of a step
(a `Signal`) was beyond a limit for as long as its `Persistence` says, or when a check has found something that often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


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


class Persistence(Enum):
    """How often a number must be beyond a limit, so that the condition holds: in k of its last n observations.

    A number that is beyond its limit for good is named k observations later.
    """

    ONCE = (1, 1)
    SOME = (2, 3)
    LASTING = (4, 5)
    MOSTLY = (8, 10)

    @property
    def enough(self) -> int:
        """Return k."""
        return self.value[0]

    @property
    def of(self) -> int:
        """Return n."""
        return self.value[1]


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
    window: int = 1
    """The newest observations that one value is computed from, at most."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold with its severity. ``value``: one number, one for each variant of the signal, or None in a finding.

    ``learning``: True if nothing is wrong while learning explains a number beyond it.
    """

    severity: Severity
    value: float | Mapping[str, float] | None = None
    lasts: Persistence = Persistence.ONCE
    learning: bool = False


class Measured(Protocol):
    """What a detector compares a number with; `rlexporter.conditions.detectors` has them."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return the limits, the mildest first."""

    @property
    def below(self) -> bool:
        """Return True for limits that a number must not fall below."""

    @property
    def after(self) -> int:
        """Return the observations that must precede the first judgment."""

    @property
    def floor(self) -> float | Mapping[str, float]:
        """Return the lowest value of an upper limit, in the unit of the signal."""

    @property
    def relative(self) -> bool:
        """Return True if limits are multiples of the number's own past."""

    @property
    def settles(self) -> bool:
        """Return True if a limit never changes once it is known."""

    @property
    def every(self) -> int:
        """Return the observations for which a measure stays good, where limits do not settle."""

    @property
    def words(self) -> str:
        """Return what the limits are multiples of, for a table: `times its start`; empty for fixed ones."""

    def measure(self, past: Any) -> float | None:
        """Return what the limits are multiples of in a past of the number; None while it is too short."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """A way in which a run is unhealthy; with the severity INFO also a good sign."""

    name: str
    alert: str
    family: Family
    signal: str
    """The number that is judged, or what looks for a finding."""
    detector: Measured
    summary: str
    """A sentence for the alert, without templates."""
    about: str = ""
    """The same as ``summary`` where it is known what it is about, which stands for {subject}."""
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

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return the limits, the mildest first; of a finding they have no number."""
        return self.detector.limits

    @property
    def below(self) -> bool:
        """Return True if the number must not fall below its limits."""
        return self.detector.below

    @property
    def finding(self) -> bool:
        """Return True if it is so or not, and has no limit."""
        return self.limits[0].value is None

    def applies(self, algorithm: str) -> bool:
        """Return True if the condition applies to a run of ``algorithm``."""
        return not self.algorithms or algorithm in self.algorithms

    def says(self, subject: str) -> str:
        """Return the sentence for an alert, with what it is about where that is known (empty: it is not)."""
        return self.about.format(subject=subject) if subject and self.about else self.summary
