"""Expressions that rules and dashboards share."""

from __future__ import annotations

import re

from rlexporter.catalog import LOST_WITHOUT

LOST = ", ".join(LOST_WITHOUT)
WINDOW = "15m"
"""How far back a sample is still taken: a process that has died has no newer one."""
LATELY = 600
"""Seconds for which a condition that lasted one step is still an alert."""


def expand(expression: str) -> str:
    """``run(x)`` is the largest over the processes of a run, ``LOST`` the labels that are lost with it."""
    return re.sub(r"\brun\(", f"max without ({LOST}) (", expression).replace("LOST", LOST)


def condition(name: str, severity: str) -> str:
    """The value with which a condition began, while it holds or has begun lately.

    `increase()` would miss an event before the first scrape, and a bare ``== 1`` a last sample between two evaluations.
    """
    of = f'{{condition="{name}",severity="{severity}"}}[{WINDOW}]'
    return expand(
        f"run(last_over_time(rl_condition_last_event_value{of}))\n"
        "and (\n"
        f"  run(last_over_time(rl_condition_last_event_timestamp_seconds{of})) > time() - {LATELY}\n"
        f"  or run(last_over_time(rl_condition{of})) == 1\n"
        ")"
    )
