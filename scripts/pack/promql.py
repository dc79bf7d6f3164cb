"""PromQL expressions that rules and dashboards share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlexporter.commands.generate import TARGETS
from rlexporter.model.condition import Condition, Severity
from scripts.pack.outside import LOST_WITHOUT

LOST = ", ".join(LOST_WITHOUT)
NONFINITE = "nonfinite(_reward|_value_loss)?|reward_(function_)?lost"
"""The conditions on values that are no numbers; tests compare it with the table."""


def expand(expression: str) -> str:
    """Return PromQL for the short forms in the catalog.

    ``run(x)`` is the maximum over the processes of a run, ``LOST`` the labels it loses, ``NONFINITE`` a matcher of the
    conditions on values that are no numbers, ``TARGETS`` one of the jobs that runs are
    scraped in, which `rlexporter generate --job` replaces.
    """
    found = re.sub(r"\brun\(", f"max without ({LOST}) (", expression).replace("LOST", LOST)
    found = re.sub(r"\bNONFINITE\b", f'condition=~"{NONFINITE}"', found)
    return found.replace("TARGETS", TARGETS)


def alerts(condition: Condition) -> tuple[str, ...]:
    """Return the severities at which a condition raises an alert: not for information."""
    return tuple(each.severity.value for each in condition.limits if each.severity is not Severity.INFO)


def named(conditions: Sequence[Condition]) -> str:
    """Return the matcher of the label ``condition`` for any of them."""
    return f'condition{"=~" if len(conditions) > 1 else "="}"{"|".join(each.name for each in conditions)}"'


def alert_on(conditions: Sequence[Condition]) -> str:
    """Return the alert on conditions: the value as one began, by severity, while it holds or has begun lately."""
    return f"rl:alert{{{named(conditions)}}}"


def tells(expression: str) -> bool:
    """Return True if what an alert selects has labels of which its texts are made, and which it drops."""
    return "rl:alert{" in expression or "group_left (s" in expression
