"""The data of one step as the conditions see it: numbers by series, histograms, and counts of non-finite values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import AnomalyCounts


@dataclass(slots=True)
class LineNumbers:
    """The numbers of a log line, by the metrics that they feed."""

    keys: tuple[str, ...] = ()
    """The keys of the line."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The finite numbers of metrics without labels, by Prometheus name."""
    functions: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """The numbers of metrics with one label, by Prometheus name and label; None if None was logged."""

    def note(self, targets: Iterable[Series], value: float | None) -> None:
        """Take the ``value`` of a key that feeds ``targets``; None if None was logged."""
        for metric, labels in targets:
            if metric.kind is Kind.HISTOGRAM:
                continue
            if len(labels) == 1:
                self.functions.setdefault(metric.series, {})[labels[0]] = value
            elif not labels and value is not None and isfinite(value):
                self.numbers[metric.series] = value

    def forget(self, targets: Iterable[Series]) -> None:
        """Drop the numbers of a key that feeds ``targets``."""
        for metric, labels in targets:
            if labels:
                self.functions.get(metric.series, {}).pop(labels[0], None)
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
    keys: tuple[str, ...] = ()
    stalled: tuple[float, str] | None = None
    """The seconds without a step, if the run counted as hung before this one, and the phase that took most of them."""

    def __post_init__(self) -> None:
        """Put corrected means in place of logged ones."""
        for series, counted in self.seen.items():
            if not series.labels:
                self.counted[series.metric.series] = counted
            elif series.metric.series == "rl_corrected_mean" and counted.count:
                self.numbers[series.labels[0]] = finite_mean(counted)


def finite_mean(counted: Histogram) -> float:
    """Return the mean of the finite values; there must be at least one."""
    return (counted.positive_sum - counted.negative_sum) / counted.count


def value_range(counted: Histogram) -> float | None:
    """Return the largest minus the smallest value; None if they are unknown."""
    found = counted.maximum - counted.minimum
    return found if isfinite(found) else None
