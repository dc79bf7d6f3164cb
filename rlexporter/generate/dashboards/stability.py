"""How near a run is to its alerts: each signal as a share of the limit that is in force for it."""

from __future__ import annotations

from collections.abc import Iterator

from rlexporter.catalog import CONDITIONS, NAMED
from rlexporter.conditions.from_catalog import SIGNALS
from rlexporter.generate.dashboards.boxes import GREEN, RED, YELLOW
from rlexporter.generate.dashboards.frame import ZERO, select
from rlexporter.generate.dashboards.panels import Query, words
from rlexporter.model.condition import Baseline, Condition, Read, Severity, Signal
from rlexporter.model.metric import Kind

DESCRIPTION = (
    "Each signal as a share of the nearest limit that an alert has for it now: at 1 it is there. Limits that are "
    "measured with the run's own past are known after its first steps. An alert also asks how often: a single step "
    "beyond 1 need not raise one. What is far beyond is cut off."
)

ABSENT = "No limit is known yet: they are measured with the first steps"
NEAR = ((GREEN, None), (YELLOW, 0.8), (RED, 1.0))
"""Colours of a share."""


def shares() -> list[Query]:
    """A line for each signal of which both are served."""
    return [Query(f"clamp_max({expr}, {_MOST})", legend) for legend, expr in _shares()]


def worst() -> str:
    """The nearest to its limit of each run, as a share with the label ``signal``."""
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
"""Beyond this much is beyond it; more would press the others flat."""
_SEVERE = 'rank="0",severity=~"warning|critical"'


def _any(names: list[str]) -> str:
    return f'condition=~"{"|".join(names)}"'


def _gauges(signal: Signal) -> list[str]:
    """Those that have the unit of the limit: after a derived source another kind of number would come."""
    found = []
    for source in signal.sources:
        if source.read is Read.DERIVED:
            break
        if source.read is Read.VALUE and NAMED[source.series].kind is Kind.GAUGE:
            found.append(source.series)
    return list(dict.fromkeys(found))


def _is_comparable(condition: Condition) -> bool:
    """Whether value and limit have a share: both above 0, and the limit one of a level, not of a step."""
    severe = any(limit.severity is not Severity.INFO for limit in condition.limits)
    return (
        severe
        and condition.baseline not in (Baseline.LEVEL, Baseline.PREVIOUS)
        and all(value > 0 for limit in condition.limits for value in _values(limit.value))
    )


def _values(value: object) -> list[float]:
    return [float(each) for each in value.values()] if isinstance(value, dict) else [float(str(value))]
