"""PromQL expressions that rules and dashboards share."""

from __future__ import annotations

import re

from rlexporter.catalog import LOST_WITHOUT

LOST = ", ".join(LOST_WITHOUT)
WINDOW = "15m"
"""Age up to which a sample is used: a process that has died has no newer one."""
LATELY = 600
"""Seconds for which a condition that lasted one step is still an alert."""


def expand(expression: str) -> str:
    """Return PromQL for ``run(x)``, the maximum over the processes of a run, and ``LOST``, the labels it loses."""
    return re.sub(r"\brun\(", f"max without ({LOST}) (", expression).replace("LOST", LOST)


def condition(name: str, severity: str, *, symptom: bool = False) -> str:
    """Return an expression for the value with which a condition began, while it holds or has begun lately.

    `increase()` would miss an event before the first scrape, and ``== 1`` alone a last sample between two evaluations.
    ``symptom``: it may be a symptom of another; then it counts only in processes that do not call it one.
    """
    of = f'{{condition="{name}",severity="{severity}"}}[{WINDOW}]'
    value = f"last_over_time(rl_condition_last_event_value{of})"
    if symptom:
        value = f"\n  {value}\n  unless last_over_time(rl_condition_symptom{of}) == 1\n"
    return expand(
        f"run({value})\n"
        "and (\n"
        f"  run(last_over_time(rl_condition_last_event_timestamp_seconds{of})) > time() - {LATELY}\n"
        f"  or run(last_over_time(rl_condition{of})) == 1\n"
        ")"
    )
