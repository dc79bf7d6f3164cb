"""Distance of a run from its alerts: each signal as a share of the limit in force for it."""

from __future__ import annotations

from collections.abc import Iterator

from rlexporter.catalog.conditions import CONDITIONS
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.from_catalog import SIGNALS
from rlexporter.model.condition import Baseline, Condition, Read, Severity, Signal
from rlexporter.model.metric import Kind
from scripts.pack.dashboards.boxes import GREEN, RED, YELLOW
from scripts.pack.dashboards.frame import ZERO, select
from scripts.pack.dashboards.panels import Query, words

DESCRIPTION = (
    "Each signal as a share of the nearest limit that an alert has for it now: at 1 it is there. Limits that are "
    "measured with the run's own past are known after its first steps. An alert also asks how often: a single step "
    "beyond 1 need not raise one. What is far beyond is cut off."
)

ABSENT = "No limit is known yet: they are measured with the first steps"
NEAR = ((GREEN, None), (YELLOW, 0.8), (RED, 1.0))
"""Colors of a share, each from a value on."""


def shares() -> list[Query]:
    """Return a line for each signal whose value and limit are both served."""
    return [Query(f"clamp_max({expr}, {_MOST})", legend) for legend, expr in _shares()]


def worst() -> str:
    """Return an expression for each run's signal nearest to its limit: its share, with the label ``signal``."""
    named = (f'label_replace({expr}, "signal", "{legend}", "", "")' for legend, expr in _shares())
    return f"clamp_max(topk by (run) (1, {' or '.join(named)}), 10)"


def _shares() -> Iterator[tuple[str, str]]:
    for signal in SIGNALS:
        gauges = _gauges(signal)
        conditions = [each for each in CONDITIONS if each.signal == signal.name and _is_comparable(each)]
        if not gauges:
            continue
        value = " or ".join(f"max by (run) ({name}{{{ZERO}}})" for name in gauges)
        for below in (False, True):
            names = [each.name for each in conditions if each.below is below]
            if not names:
                continue
            limit = f"rl_threshold{{{select(_any(names), _SEVERE)}}} > 0"
            if below:
                yield f"{words(signal.name)}, low", f"max by (run) ({limit}) / (({value}) > 0)"
            else:
                yield words(signal.name), f"({value}) / min by (run) ({limit})"


_MOST = 3
"""Highest share drawn: a higher one would press the other lines flat."""
_SEVERE = 'rank="0",severity=~"warning|critical"'


def _any(names: list[str]) -> str:
    return f'condition=~"{"|".join(names)}"'


def _gauges(signal: Signal) -> list[str]:
    """Return the gauges in the unit of the limit: the sources after a derived one have another."""
    found = []
    for source in signal.sources:
        if source.read is Read.DERIVED:
            break
        if source.read is Read.VALUE and NAMED[source.series].kind is Kind.GAUGE:
            found.append(source.series)
    return list(dict.fromkeys(found))


def _is_comparable(condition: Condition) -> bool:
    """Tell whether value and limit have a share: both above 0, and the limit for a level, not for a change."""
    severe = any(limit.severity is not Severity.INFO for limit in condition.limits)
    return (
        severe
        and condition.baseline not in (Baseline.LEVEL, Baseline.PREVIOUS)
        and all(value > 0 for limit in condition.limits for value in _values(limit.value))
    )


def _values(value: object) -> list[float]:
    return [float(each) for each in value.values()] if isinstance(value, dict) else [float(str(value))]
