"""State of a run in words: the one that it is in, else the one in which its newest process was last seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scripts.pack.dashboards.boxes import BLUE, COLORED, GREEN, ORANGE, RED, YELLOW, words
from scripts.pack.dashboards.frame import RUN, ZERO, Json, select

_COLORS = {
    "running": GREEN,
    "starting": YELLOW,
    "failed": RED,
    "preempted": ORANGE,
    "stopped": ORANGE,
    "finished": BLUE,
    "unreachable": RED,
}


def of_runs() -> str:
    """Return an expression with the state of each run as the label ``state``; unreachable: it was not over."""
    return _of(_newest(lambda series: f"last_over_time({series}[$__range])"))


def of_all() -> str:
    """Return the same for a fleet, at a tenth of the cost: of runs that are gone, it is what the rules remember."""
    known = f"last_over_time(rl:run_last_seen_timestamp_seconds{{{select()}}}[$__range])"
    return _of(f"topk by ({RUN}) (1, max by ({RUN}, state) ({known}))")


def mapping() -> Json:
    """Return the colors of the words."""
    return words({state: (state, color) for state, color in _COLORS.items()})


LOOK: Mapping[str, object] = {"mappings": [mapping()], "custom__cellOptions": COLORED}
"""Look of the state in a table."""


def _of(last: str) -> str:
    gone = f'label_replace({last}, "state", "unreachable", "state", "starting|running")'
    return f"{_newest(str)} or on ({RUN}) {gone}"


def _newest(read: Callable[[str], str]) -> str:
    """Return an expression for the state of the newest process of each run, of which ``read`` reads each series."""
    states, starts = (read(f"{name}{{{ZERO}}}") for name in ("rl_run_state", "rl_run_start_timestamp_seconds"))
    newest = f"topk by ({RUN}) (1, max by ({RUN}, instance) ({starts}))"
    return f"max by ({RUN}, state) ({states} == 1 and on ({RUN}, instance) {newest})"
