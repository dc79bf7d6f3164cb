"""A snapshot by name of metric, and its numbers with their units."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.catalog.metrics import MAY_BE_NONFINITE, NAMED
from rlexporter.catalog.questions import QUESTIONS
from rlexporter.conditions import table
from rlexporter.conditions.table import SIGNALS, sources
from rlexporter.model.snapshot import Snapshot

_SHOWN = {NAMED[one.series].unit for question in QUESTIONS for shown in question.main for one in sources(shown)}
UNITS = sorted((_SHOWN | {signal.unit for signal in SIGNALS}) - {"", "fraction", "reward"})
"""What follows a number of a card or of an incident, in the language of the page; other units are English."""
COUNTED = ("values",)
"""The units of signals that count errors: any is too many."""


def quantity(value: float, unit: str, language: Language = ENGLISH) -> str:
    """Return ``value`` with its unit: `0.83 nats per token`, `95 %`, `1 key`."""
    if unit == table.ORDERS:
        return language("a chance of 1 in 10^{power}", power=f"{value:.3g}")
    if unit == "fraction":
        return f"{100 * value:.4g} %"
    unit = "" if unit == "reward" else language(unit)
    if value == 1 and language is ENGLISH:
        unit = singular(unit)
    return f"{value:.4g} {unit}".rstrip()


def singular(unit: str) -> str:
    """Return an English unit for one of it: `token per second`, `batch`, `entry`."""
    head, per, rest = unit.partition(" per ")
    one = f"{head[:-3]}y" if head.endswith("ies") else re.sub(r"(?<=ch)es$|(?<!/)s$", "", head)
    return one + per + rest


class Samples:
    """The samples of one snapshot, by the Prometheus name of their metric."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._named: dict[str, dict[tuple[str, ...], float]] = {}
        for series, value in snapshot.samples.items():
            self._named.setdefault(series.metric.series, {})[series.labels] = value

    def of(self, name: str) -> Mapping[tuple[str, ...], float]:
        """Return the samples of the metric ``name`` by the values of their labels."""
        return self._named.get(name, {})

    def value(self, name: str, *labels: str) -> float | None:
        """Return one sample of the metric ``name``; None if it is absent."""
        return self.of(name).get(labels)

    def info(self, name: str) -> dict[str, str]:
        """Return the labels of the metric ``name``, whose value is always 1; empty if it is absent."""
        return next((dict(zip(NAMED[name].labels, labels, strict=True)) for labels in self.of(name)), {})

    @property
    def step(self) -> int | None:
        """Return the step that the run is at."""
        step = self.value("rl_step")
        return None if step is None else int(step)

    @property
    def nonfinite(self) -> dict[tuple[str, ...], float]:
        """Return the counts of NaN and infinities that are not 0, by metric and kind."""
        return {labels: count for labels, count in self.of("rl_nonfinite_values_total").items() if count}

    @property
    def faults(self) -> float:
        """Return the number of NaN and infinities in metrics that must not have any."""
        return sum(count for (metric, _), count in self.nonfinite.items() if metric not in MAY_BE_NONFINITE)
