"""Short forms for the tables of the catalog, so that facts that entries share are stated once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from rlexporter.model.condition import Baseline, Condition, Family, Limit, Severity
from rlexporter.model.metric import Group, Key, Kind, Level, Metric, Range, RankScope

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

Number = float | Mapping[str, float]
"""A number for all variants of a signal, or one for each."""

GROUPWISE = "grpo rloo async-grpo"
TRAINERS = (
    f"{GROUPWISE} online-dpo dpo kto cpo orpo tpo sft reward "
    "distillation async-distillation gkd gold iw-opd sdft sdpo a2po"
)
"""Algorithms as `keys` takes them: those that compare the completions of a group, and all but PPO."""


def keys(algorithms: str, /, *names: str, only: bool = False) -> tuple[Key, ...]:
    """Return the log keys ``names`` of ``algorithms``, which are words in one string; ``only`` as in `Key`."""
    return tuple(Key(name, tuple(algorithms.split()), only) for name in names)


class Facts(TypedDict, total=False):
    """The fields of `Metric` that an entry may state beside its name and help."""

    level: Level
    unit: str
    scope: RankScope
    keys: tuple[Key, ...]
    labels: tuple[str, ...]
    healthy: Range
    reading: str
    of: str
    initial: tuple[tuple[str, ...], ...]
    may_be_nonfinite: bool
    corrected: bool


class Readings(Facts, total=False):
    """The facts that the series of one stem share, and the reading of each by the end of its name, in order."""

    mean: str
    min: str
    max: str
    std: str
    chosen: str
    rejected: str


_IN_WORDS = {
    "mean": "Mean",
    "min": "Smallest",
    "max": "Largest",
    "std": "Spread of the",
    "chosen": "chosen",
    "rejected": "rejected",
}


class Entries:
    """Makes the metrics of one group."""

    def __init__(self, group: Group, /, **shared: Unpack[Facts]) -> None:
        """Remember the ``shared`` facts, which apply to an entry unless it states its own."""
        self._group = group
        self._shared: dict[str, Any] = {**shared}

    def gauge(self, series: str, text: str, /, **own: Unpack[Facts]) -> Metric:
        """Make a metric that shows the newest value; ``text`` is its help."""
        return self._metric(Kind.GAUGE, series, text, own)

    def fraction(self, series: str, text: str, /, **own: Unpack[Facts]) -> Metric:
        """Make a gauge of a share, from 0 to 1."""
        return self._metric(Kind.GAUGE, series, text, {"unit": "fraction", **own})

    def gauges(self, stem: str, text: str, /, **own: Unpack[Readings]) -> Iterator[Metric]:
        """Make a gauge for each reading: ``stem`` and the reading's name are the series.

        That name stands for ``{}`` in the log keys, and in words in ``text``.
        """
        facts: dict[str, Any] = {**own}
        readings = {name: facts.pop(name) for name in own if name in _IN_WORDS}
        for name, reading in readings.items():
            named = tuple(replace(key, name=key.name.replace("{}", name)) for key in own.get("keys", ()))
            facts |= {"keys": named, "reading": reading}
            yield self._metric(Kind.GAUGE, stem + name, text.format(_IN_WORDS[name]), facts)

    def counter(self, series: str, text: str, /, **own: Unpack[Facts]) -> Metric:
        """Make a metric that only grows."""
        return self._metric(Kind.COUNTER, series, text, own)

    def info(self, series: str, text: str, /, **own: Unpack[Facts]) -> Metric:
        """Make a metric that is always 1 and whose labels hold the information."""
        return self._metric(Kind.INFO, series, text, own)

    def histogram(self, series: str, text: str, bounds: tuple[float, ...], /, **own: Unpack[Facts]) -> Metric:
        """Make a metric that counts values up to each of ``bounds``, of one rank unless the entry states a scope."""
        return self._metric(Kind.HISTOGRAM, series, text, {"scope": RankScope.RANK, "bounds": bounds, **own})

    def _metric(self, kind: Kind, series: str, text: str, own: Mapping[str, Any]) -> Metric:
        return Metric(series=series, kind=kind, group=self._group, help=text, **{**self._shared, **own})


def info(value: Number, *, k: int = 1, n: int = 1) -> Limit:
    """Make an informational limit; it applies when ``k`` of the last ``n`` observations are beyond ``value``."""
    return Limit(Severity.INFO, value, (k, n))


def warning(value: Number, *, k: int = 1, n: int = 1, learning: str = "") -> Limit:
    """Make a limit like `info`, but one that asks for a look today. ``learning``: what may raise it."""
    return Limit(Severity.WARNING, value, (k, n), learning)


def critical(value: Number, *, k: int = 1, n: int = 1, learning: str = "") -> Limit:
    """Make a limit like `warning`, but one that asks for a person now."""
    return Limit(Severity.CRITICAL, value, (k, n), learning)


class Judged(TypedDict):
    """The comparison in a condition: a signal, its limits, and what they are measured against."""

    signal: str
    limits: tuple[Limit, ...]
    below: bool
    baseline: Baseline
    floor: Number
    min_observations: int


def above(
    signal: str, *limits: Limit, vs: Baseline = Baseline.FIXED, floor: Number = 0.0, min_observations: int = 0
) -> Judged:
    """Compare a signal with limits that it must not exceed.

    If ``vs`` is the run's own past, limits are multiples of it, and at least ``floor``.
    """
    return Judged(
        signal=signal, limits=limits, below=False, baseline=vs, floor=floor, min_observations=min_observations
    )


def below(signal: str, *limits: Limit, vs: Baseline = Baseline.FIXED, min_observations: int = 0) -> Judged:
    """Compare a signal with limits that it must not fall below; ``vs`` as in `above`."""
    return {**above(signal, *limits, vs=vs, min_observations=min_observations), "below": True}


class Texts(TypedDict, total=False):
    """The fields of `Condition` that an entry states after what is judged."""

    summary: Required[str]
    about: str
    related: tuple[str, ...]
    foretold_by: tuple[str, ...]
    level: str
    stops: bool


class Begun(NamedTuple):
    """The first half of a condition, which `when` completes."""

    name: str
    alert: str
    family: Family
    algorithms: tuple[str, ...] = ()

    def when(self, judged: Judged, /, **texts: Unpack[Texts]) -> Condition:
        """Make the condition that holds while the signal in ``judged`` is beyond a limit."""
        return Condition(**self._asdict(), **judged, **texts)


condition = Begun
"""Begins the entry of a condition: ``condition(name, alert, family, algorithms).when(above(...), ...)``."""
