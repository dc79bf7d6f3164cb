"""State of a run as one number, so that the last known state is shown, whichever label it had."""

from __future__ import annotations

from scripts.pack.dashboards.boxes import BLUE, GREEN, ORANGE, RED, YELLOW, words
from scripts.pack.dashboards.frame import RANK_0, RUN, Json, select

_LIVE = {"running": GREEN, "starting": YELLOW, "failed": RED, "preempted": ORANGE, "stopped": ORANGE, "finished": BLUE}
_OVER = ("failed", "preempted", "stopped", "finished")
_NUMBERS = {state: number for number, state in enumerate(_LIVE, 1)}
_GONE = len(_LIVE) + 1


def code(more: str = "") -> str:
    """Return an expression for the number of a run's state, else of how its newest process ended, else that it is gone.

    ``more``: matchers.
    """
    live = [f"{_NUMBERS[state]} * (max by ({RUN}) (rl_run_state{{{_of(state, more)}}}) == 1)" for state in _LIVE]
    over = [f"{_NUMBERS[state]} * ({_last(state, more)} == 1)" for state in _OVER]
    return " or ".join((*live, *over, f"{_GONE} * ({_last('running', more)} == 1)"))


def mapping() -> Json:
    """Return the words for the numbers."""
    texts = {str(number): (state, _LIVE[state]) for state, number in _NUMBERS.items()}
    return words({**texts, str(_GONE): ("unreachable", RED)})


def _last(state: str, more: str) -> str:
    began = f"last_over_time(rl_run_start_timestamp_seconds{{{_of('', more)}}}[$__range])"
    newest = f"topk by ({RUN}) (1, max by ({RUN}, instance) ({began}))"
    last = f"last_over_time(rl_run_state{{{_of(state, more)}}}[$__range])"
    return f"max by ({RUN}) ({last} and on ({RUN}, instance) {newest})"


def _of(state: str, more: str) -> str:
    return select(RANK_0, *filter(None, [f'state="{state}"' if state else "", more]))
