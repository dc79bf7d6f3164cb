"""Limits in panels: lines of `rl_threshold`, as they are in force in that run at that time, and nothing painted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlexporter.conditions.table import CONDITIONS
from rlexporter.model.condition import Condition, Severity
from scripts.pack.dashboards.boxes import ORANGE, YELLOW
from scripts.pack.dashboards.frame import RUN, Json, select
from scripts.pack.dashboards.panels import Query

NOTE = "Dashed lines: the limits in force, where the curve comes near."

_NEAR = 2
"""A limit that is further away than so many times the value is not drawn: it would press the curve flat."""
_COLORS = {Severity.CRITICAL.value: ORANGE, Severity.WARNING.value: YELLOW}
"""Colors of limits, both milder than those of what is wrong: a healthy run shows nothing red."""


def lines(signal: str, extreme: Callable[[str], str]) -> list[Query]:
    """Return queries of the limits of ``signal`` that its value came near to.

    ``extreme`` returns an expression for the largest (`max`) or smallest (`min`) value of each run in the time shown.
    """
    found = []
    for below in (False, True):
        names = [each.name for each in CONDITIONS if each.signal == signal and each.below is below and _is_level(each)]
        if names:
            found.append(Query(_near(names, extreme, below), "{{severity}} limit"))
    return found


def look() -> list[Json]:
    """Return overrides that draw limits as dashed lines in the color of their severity."""
    return [
        {
            "matcher": {"id": "byName", "options": f"{severity} limit"},
            "properties": [
                {"id": "color", "value": {"mode": "fixed", "fixedColor": color}},
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "custom.showPoints", "value": "never"},
                {"id": "custom.fillOpacity", "value": 0},
            ],
        }
        for severity, color in _COLORS.items()
    ]


def _near(names: Sequence[str], extreme: Callable[[str], str], below: bool) -> str:
    of = select('rank="0"', f'condition=~"{"|".join(names)}"', f'severity=~"{"|".join(_COLORS)}"')
    if below:
        return f"max by ({RUN}, severity) (rl_threshold{{{of}}}) > on ({RUN}) group_left () {extreme('min')} / {_NEAR}"
    return f"min by ({RUN}, severity) (rl_threshold{{{of}}}) < on ({RUN}) group_left () {_NEAR} * {extreme('max')}"


def _is_level(condition: Condition) -> bool:
    """Tell whether an alert has a limit that can be drawn."""
    return not condition.finding and any(limit.severity.value in _COLORS for limit in condition.limits)
