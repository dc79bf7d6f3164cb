"""What signals are computed from: the data of a step, and what is known of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from rlexporter.conditions.detectors import Past
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import AnomalyCounts

ROUNDING = 1e-6
"""The relative difference below which two numbers count as equal."""
ASIDE = frozenset(("eval", "save"))
"""The phases that are not part of a step."""


@dataclass(slots=True)
class LineNumbers:
    """The numbers of a log line, by the gauges that they feed."""

    numbers: dict[str, float] = field(default_factory=dict)
    """The finite numbers of gauges without labels, by Prometheus name."""
    functions: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """The numbers of gauges with labels, by Prometheus name and labels (joined by /); None if None was logged."""

    def note(self, targets: Iterable[Series], value: float | None) -> None:
        """Take the ``value`` of a key that feeds ``targets``; None if None was logged."""
        for metric, labels in targets:
            if metric.kind is not Kind.GAUGE:
                continue
            if labels:
                self.functions.setdefault(metric.series, {})["/".join(labels)] = value
            elif value is not None and isfinite(value):
                self.numbers[metric.series] = value

    def forget(self, targets: Iterable[Series]) -> None:
        """Drop the numbers of a key that feeds ``targets``."""
        for metric, labels in targets:
            if labels:
                self.functions.get(metric.series, {}).pop("/".join(labels), None)
            else:
                self.numbers.pop(metric.series, None)


@dataclass(slots=True)
class View:
    """The data of one step, or of one log line of it."""

    step: int
    advanced: bool
    """True if this is the first data of the step."""
    gap: float | None
    """The seconds that the step took, or since the line before."""
    span: int
    """The number of steps that the logged numbers are of: more than 1 where the trainer logs every tenth step."""
    anomalies: AnomalyCounts
    numbers: dict[str, float] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    seen: Mapping[Series, Histogram] = field(default_factory=dict)
    counted: dict[str, Histogram] = field(default_factory=dict)
    """The histograms of tensors, for metrics without labels, by Prometheus name."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds spent in each phase of the step, where this process measured them."""
    stalled: tuple[float, str] | None = None
    """The seconds without a step, if the run counted as hung before this one, and the phase that took most of them."""

    def __post_init__(self) -> None:
        """Put corrected means in place of logged ones."""
        for series, counted in self.seen.items():
            if not series.labels:
                self.counted[series.metric.series] = counted
            elif series.metric.series == "rl_corrected_mean" and counted.count:
                self.numbers[series.labels[0]] = counted.finite_mean


def value_range(counted: Histogram) -> float | None:
    """Return the largest minus the smallest value; None if they are unknown."""
    width = counted.maximum - counted.minimum
    return width if isfinite(width) else None


class Reading(NamedTuple):
    """A number, and what is to be said with it."""

    value: float
    series: str = ""
    """The series that it was read at, where that varies."""
    subject: Mapping[str, int] = {}
    """What it is about, with the step since when; 0: since the number has been beyond its limit."""
    window: int = 0
    """The observations that it is computed from; 0 for those that the signal declares."""
    worse: bool = False
    """True if what it says is worse than what was said before: it is said again."""


Found = Mapping[str, int]
"""What a check has found: its subjects, each with the step since when. An empty name is the run; nothing is fine."""


@dataclass(slots=True)
class Context:
    """What signals may know of the run beside the step."""

    past: dict[str, Past]
    """The past of each signal, the current step included."""
    variant: dict[str, str] = field(default_factory=dict)
    """The variant of each signal."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """The numeric settings of the trainer, by name; empty if they are not known."""
    groups: int = 1
    """The groups of completions of a step that are rewarded apart."""
    resumed: bool = False
    """True if the first step here is not the first one of the run."""
    fresh: dict[str, float] = field(default_factory=dict)
    """The values of the signals that have one in the current step."""
    new: Callable[[str], float | None] = field(init=False)
    """Returns the value of a signal in the current step; None without one."""
    subjects: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """What signals are about in the current step."""
    functions: dict[str, Past] = field(default_factory=dict)
    """The means of each reward function."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each reward function."""
    restarted: set[str] = field(default_factory=set)
    """The signals whose past ends with this step, as what they measure is another thing from now on."""

    def __post_init__(self) -> None:
        """Read the values of a step at one place, step after step."""
        self.new = self.fresh.get


Compute = Callable[[View, Context], "float | Reading | Found | None"]
"""Computes a signal: a number, or what a check has found; None if the step has none."""
