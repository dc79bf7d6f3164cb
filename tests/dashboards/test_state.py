"""What dashboards say of the state of a run whose processes come and go, asked as Grafana does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.alerts import promtool
from tests.alerts.lives import Process, series
from tests.dashboards.grafana import ANY, DASHBOARDS, Json, View, panel
from tests.tools import EACH_GENERATION

END = 1800.0
RUNNING = ("running", 600)
LIVES: Mapping[str, tuple[Sequence[Process], str]] = {
    "runs": ([Process((("running", 3000),))], "running"),
    "finished": ([Process((RUNNING, ("finished", 60)))], "finished"),
    "failed": ([Process((RUNNING, ("failed", 60)))], "failed"),
    "vanished": ([Process((RUNNING,))], "unreachable"),
    "preempted": ([Process((RUNNING, ("preempted", 60)))], "preempted"),
    "resumed": (
        [
            Process((RUNNING, ("preempted", 60)), instance="h:1"),
            Process((RUNNING, ("finished", 60)), born=900, instance="h:2"),
        ],
        "finished",
    ),
    "failed again": (
        [
            Process((RUNNING, ("finished", 60)), instance="h:1"),
            Process((RUNNING, ("failed", 60)), born=900, instance="h:2"),
        ],
        "failed",
    ),
    "back": (
        [
            Process((RUNNING, ("failed", 60)), instance="h:1"),
            Process((("running", 3000),), born=900, instance="h:2"),
        ],
        "running",
    ),
}
"""Processes of a run, and its state at the end."""


def _asked(panel: Json, run: str) -> str:
    """The query of a panel with its variables, its range as of a page that shows half an hour."""
    view = View({**ANY, "job": "rl", "run": run}, END, 15.0)
    target = panel["targets"][0]
    return view.fill(target["expr"], view.interval(panel, target))


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_state_is_that_of_the_newest_process(generation: str, tmp_path: Path) -> None:
    """Whatever the one before it came to; and the fleet counts those that failed or vanished, and are not back."""
    runs = {name.replace(" ", "-"): life for name, life in LIVES.items()}
    processes = [
        Process(each.states, each.born, f"{run}-{each.instance}", run)
        for run, (lives, _) in runs.items()
        for each in lives
    ]
    state = panel(DASHBOARDS["rlexporter-run"], "State")
    words = {
        found["text"]: number for number, found in state["fieldConfig"]["defaults"]["mappings"][0]["options"].items()
    }
    checks: list[Json] = [
        {
            "expr": f"max without (run) ({_asked(state, run)})",
            "eval_time": f"{END:.0f}s",
            "exp_samples": [{"labels": "{}", "value": int(words[named])}],
        }
        for run, (_, named) in runs.items()
    ]
    lost = [run for run, (_, named) in runs.items() if named in ("failed", "unreachable")]
    assert len(lost) == 3
    for title, count in (("Failed or gone", len(lost)), ("Running", 2)):
        asked = _asked(panel(DASHBOARDS["rlexporter-fleet"], title), ".+")
        checks.append(
            {"expr": asked, "eval_time": f"{END:.0f}s", "exp_samples": [{"labels": "{}", "value": count}]},
        )
    given = series(processes, int(END))
    test: Json = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": checks,
    }
    assert promtool.run(generation, tmp_path, [test]) == ""
