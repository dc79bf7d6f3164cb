"""What dashboards say of runs whose processes come and go, and of counters that are absent at 0, as Grafana asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.pack.dashboards.panels import grown
from tests.alerts import promtool
from tests.alerts.lives import Process, series
from tests.dashboards.grafana import ANY, DASHBOARDS, Json, View, panel
from tests.tools import BOTH_GENERATIONS

END = 1800
RUNNING = ("running", 600)


def _lived(*states: tuple[str, int], born: int = 0, labels: Mapping[str, str] | None = None) -> Process:
    return Process(states, born, instance=f"h:{born}", labels=labels or {})


LIVES: Mapping[str, tuple[Sequence[Process], str]] = {
    "shared": ([_lived(("running", 3000), labels={"team": "x"})], "running"),
    "shared, y": ([_lived(RUNNING, ("failed", 60), born=15, labels={"team": "y"})], "failed"),
    "shared, nobody": ([_lived(RUNNING, ("finished", 60), born=30)], "finished"),
    "runs": ([_lived(("running", 3000))], "running"),
    "finished": ([_lived(RUNNING, ("finished", 60))], "finished"),
    "failed": ([_lived(RUNNING, ("failed", 60))], "failed"),
    "vanished": ([_lived(RUNNING)], "unreachable"),
    "preempted": ([_lived(RUNNING, ("preempted", 60))], "preempted"),
    "resumed": ([_lived(RUNNING, ("preempted", 60)), _lived(RUNNING, ("finished", 60), born=900)], "finished"),
    "failed-again": ([_lived(RUNNING, ("finished", 60)), _lived(RUNNING, ("failed", 60), born=900)], "failed"),
    "back": ([_lived(RUNNING, ("failed", 60)), _lived(("running", 3000), born=900)], "running"),
}
"""Processes of a run, and its state at the end. What follows a comma is no part of its name."""


def _asked(panel: Json, run: str) -> str:
    """The query of a panel with its variables, its range as of a page that shows half an hour."""
    view = View({**ANY, "job": "rl", "run": run}, float(END), 15.0)
    target = panel["targets"][0]
    return view.fill(target["expr"], view.interval(panel, target))


def _of_states(runs: Json) -> Json:
    """The target of the table of runs that has their states."""
    [found] = [each for each in runs["targets"] if "unreachable" in each["expr"]]
    return dict(found)


@pytest.mark.parametrize("generation", BOTH_GENERATIONS)
def test_the_state_is_that_of_the_newest_process(generation: str, tmp_path: Path) -> None:
    """Whatever the one before it came to, each of three runs of one name its own, by its team or without one.

    The fleet counts those that failed or vanished, and are not back.
    """
    names = {key: key.partition(",")[0] for key in LIVES}
    processes = [
        replace(each, run=names[key], instance=f"{names[key]}-{each.instance}")
        for key, (lives, _) in LIVES.items()
        for each in lives
    ]
    state = panel(DASHBOARDS["rlexporter-run"], "State")
    in_fleet = {"targets": [_of_states(panel(DASHBOARDS["rlexporter-fleet"], "Runs"))]}
    words = state["fieldConfig"]["defaults"]["mappings"][0]["options"]
    checks = []
    for run in set(names.values()):
        found = [named for key, (_, named) in LIVES.items() if names[key] == run]
        assert set(found) <= set(words)
        for of in (state, in_fleet):
            asked = f"count by (run, state) ({_asked(of, run)})"
            checks.append(promtool.check(asked, END, {f'{{run="{run}",state="{each}"}}': 1 for each in found}))
    lost = [named for _, named in LIVES.values() if named in ("failed", "unreachable")]
    assert len(lost) == 4
    for title, count in (("Failed or gone", len(lost)), ("Running", 3)):
        asked = _asked(panel(DASHBOARDS["rlexporter-fleet"], title), ".+")
        checks.append(promtool.check(asked, END, {"{}": count}))
    assert promtool.run(generation, tmp_path, [promtool.of(series(processes, END), checks)]) == ""


_COUNTER = "rl_nonfinite_values_total"
_SCRAPES = {
    # Born at 3 in the fifth minute; 2 more in the twentieth.
    f'{_COUNTER}{{run="grows"}}': "_x20 3x59 5x40",
    # A process that had 7, and died with them; the next one is absent, then born at 1 in the eleventh minute.
    f'{_COUNTER}{{run="restarted"}}': "7x20 stale _x22 1x60",
}


@pytest.mark.parametrize("generation", BOTH_GENERATIONS)
def test_growth_is_seen_from_the_first_event(generation: str, tmp_path: Path) -> None:
    """By a window of a minute, at 15 seconds a scrape; `increase` alone is empty at the birth.

    A later event and one after a restart are seen as well.
    """
    view = View({"job": "j", "run": "r"}, 3600.0, 15.0)
    shown = view.fill(f"round(sum by (run) {grown(_COUNTER, '')} > 0)")
    alone = f"round(sum by (run) (increase({_COUNTER}[1m])) > 0)"
    checks = [
        promtool.check(shown, 240, {}),
        promtool.check(shown, 330, {'{run="grows"}': 3}),
        promtool.check(alone, 330, {}),
        promtool.check(shown, 480, {}),
        promtool.check(shown, 690, {'{run="restarted"}': 1}),
        promtool.check(shown, 900, {}),
        promtool.check(shown.replace("round", "sgn"), 1230, {'{run="grows"}': 1}),  # `increase` extrapolates
        promtool.check(shown, 1440, {}),
    ]
    assert promtool.run(generation, tmp_path, [promtool.of(_SCRAPES, checks)]) == ""
