"""What one step brought, as the conditions see it: numbers by series, what was counted, what was no number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from rlexporter import values
from rlexporter.buckets import Buckets
from rlexporter.draft import News
from rlexporter.feed import StepUpdate
from rlexporter.model import Kind, Series
from rlexporter.values import Unreadable

_MAX_KEYS = 2000


@dataclass(slots=True)
class View:
    """One step, or the part of it that a line brought."""

    step: int
    advanced: bool
    """Whether this is the first that is heard of the step."""
    gap: float | None
    """Seconds that the step took, or since the line before."""
    news: News
    numbers: dict[str, float] = field(default_factory=dict)
    """Finite ones, by Prometheus name; of metrics without labels."""
    functions: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Of metrics with one label: by Prometheus name, then by label; None was logged as None."""
    seen: Mapping[Series, Buckets] = field(default_factory=dict)
    counted: dict[str, Buckets] = field(default_factory=dict)
    """What was seen at the tensor, of metrics without labels, by Prometheus name."""
    keys: tuple[str, ...] = ()
    """Those of the log line."""


class Reader:
    """Makes views. ``resolve``: the series that a log key feeds."""

    def __init__(self, resolve: Callable[[str], tuple[Series, ...]]) -> None:
        self._resolve = resolve
        self._known: dict[str, tuple[Series, ...]] = {}
        self._stepwise: set[str] = set()

    def read(self, view: View, logs: Mapping[str, object], update: StepUpdate | None) -> View:
        """Numbers of each step come before means over a window; what was corrected before what was logged."""
        for key, raw in logs.items():
            if key not in self._stepwise:
                self._number(view, key, raw)
        view.keys = tuple(logs)
        if update is not None:
            for key, each in update.values.items():
                self._stepwise.add(key)
                finite = [number for number in each if isfinite(number)]
                if finite:
                    self._number(view, key, sum(finite) / len(finite))
        for series, counted in view.seen.items():
            if not series.labels:
                view.counted[series.metric.series] = counted
            elif series.metric.series == "rl_corrected_mean" and counted.count:
                view.numbers[series.labels[0]] = finite_mean(counted)
        return view

    def _number(self, view: View, key: str, raw: object) -> None:
        value = raw if type(raw) is float else values.read(raw)
        if type(value) is not float and value is not Unreadable.UNDEFINED:
            return
        for series in self._targets(key):
            if series.metric.kind is Kind.HISTOGRAM:
                continue
            name = series.metric.series
            if len(series.labels) == 1:
                view.functions.setdefault(name, {})[series.labels[0]] = value if type(value) is float else None
            elif not series.labels and type(value) is float and isfinite(value):
                view.numbers[name] = value

    def _targets(self, key: str) -> tuple[Series, ...]:
        found = self._known.get(key)
        if found is None:
            found = self._resolve(str(key))
            if len(self._known) < _MAX_KEYS:
                self._known[key] = found
        return found


def finite_mean(counted: Buckets) -> float:
    """Of the finite values; there must be one."""
    return (counted.positive_sum - counted.negative_sum) / counted.count


def value_range(counted: Buckets) -> float | None:
    """From the smallest to the largest value; None where these are not known."""
    found = counted.maximum - counted.minimum
    return found if isfinite(found) else None
