"""Runs beside each other, as a person reads them: a week of them, back-filled into a real Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.dashboards.grafana import DASHBOARDS, View, answers, asking, panel, panels, variable
from tests.dashboards.past import END, SCRAPE, Past, blocks
from tests.dashboards.transformations import Frame, tables, transformed
from tests.tools import Prometheus, prometheus

COMPARE = DASHBOARDS["rlexporter-compare"]
DAY = 86_400.0
SHOWN = 7 * DAY
_NEEDED = {
    *("rl_step", "rl_reward_mean", "rl_kl_per_token", "rl_kl_per_token_dist", "rl_hyperparameter"),
    *("rl_run_info", "rl_run_state", "rl_run_start_timestamp_seconds"),
}


@dataclass(frozen=True)
class _Process:
    """A process of a run. ``days``: before the end it began; its rewards, from the step after ``first``; and pace."""

    run: str
    days: float
    rewards: tuple[float, ...]
    pace: float = 120.0
    first: int = 0
    instance: str = "a"
    settings: Mapping[str, float] = field(default_factory=dict)
    logs_kl: bool = True
    sees_kl: bool = False


_RISING = tuple(0.1 * step for step in range(1, 31))
_COMMON = {"num_generations": 8.0, "learning_rate": 1e-6}
PROCESSES = (
    _Process("last week", 6.0, _RISING, settings={**_COMMON, "beta": 0.04}),
    _Process("today", 0.3, tuple(value + 5 for value in _RISING), settings={**_COMMON, "beta": 0.0, "delta": 2.0}),
    _Process("resumed", 3.0, (1.0, 2.0, 3.0, 4.0, 5.0), settings={**_COMMON, "beta": 0.04}),
    _Process("resumed", 2.0, (30.0, 40.0), first=2, instance="b", settings={**_COMMON, "beta": 0.01}),
    _Process("ahead", 6.5, (1.0, 2.0, 3.0), first=50),
    _Process("short", 4.0, (1.0, 2.0, 3.0, 4.0), pace=150.0),
    _Process("tensors", 1.0, _RISING, logs_kl=False, sees_kl=True),
    _Process("neither", 0.5, _RISING, logs_kl=False),
)


def _played(process: _Process) -> Iterator[bytes]:
    """What was scraped of a process from its start until its last step, as OpenMetrics."""
    settings = dict(process.settings)
    past = Past(
        process.run, process.days * DAY, _NEEDED, process.instance, step=process.first, hyperparameters=settings
    )
    for step, reward in enumerate(process.rewards, process.first + 1):
        seen = {"rl_kl_per_token_dist": [0.25, 0.75]} if process.sees_kl else {}
        logs = {"reward": reward, **({"kl": 0.01} if process.logs_kl else {})}
        past.step(logs, step, process.pace, seen=seen)
    past.scrape(past.now + 2 * SCRAPE)
    return past.text()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus that knows the week."""
    folder = tmp_path_factory.mktemp("week")
    for process in PROCESSES:
        blocks(folder / "data", _played(process))
    with prometheus("3", folder, []) as server:
        yield server


def _shown(server: Prometheus, title: str, *runs: str) -> Frame:
    """The table that the panel shows for the runs that are chosen."""
    chosen = {"job": "rlexporter", "run": list(runs), "reward_function": ".+", "datasource": "prometheus"}
    view = View(chosen, SHOWN, SCRAPE)
    of = panel(COMPARE, title)
    return transformed(of, tables(answers(asking(server), view, of, END)))


def _curve(server: Prometheus, title: str, *runs: str) -> dict[str, dict[float, float]]:
    """The points of each line, by step, after the checks that a trend panel makes before it draws anything."""
    frame = _shown(server, title, *runs)
    of = panel(COMPARE, title)
    steps = frame.pop(of["options"]["xField"])
    assert of["type"] == "trend"
    assert steps == sorted(set(steps)), "values must be in ascending order"
    assert set(frame) == set(runs)
    return {
        run: {
            step: value for step, value in zip(steps, values, strict=True) if value is not None and math.isfinite(value)
        }
        for run, values in frame.items()
    }


def test_the_same_step_of_two_runs_lies_in_one_row(filled: Prometheus) -> None:
    """Although one ran last week, and the other today."""
    found = _curve(filled, "Reward", "last week", "today")

    both = set(found["last week"]) & set(found["today"])
    assert len(both) >= 25
    assert all(found["today"][step] == pytest.approx(found["last week"][step] + 5) for step in both)


def test_each_step_is_there_once_and_in_order(filled: Prometheus) -> None:
    """What a run did anew replaces what it did first; a run of ten minutes is not lost in a week."""
    resumed = _curve(filled, "Reward", "resumed")["resumed"]  # from step 5 it went back to 2
    short = _curve(filled, "Reward", "short")["short"]
    later_first = _curve(filled, "Reward", "ahead", "today")  # the earlier run goes on from step 50

    assert resumed == {1: 1.0, 2: 2.0, 3: 30.0, 4: 40.0, 5: 5.0}
    assert short == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert later_first["ahead"] == {51: 1.0, 52: 2.0, 53: 3.0}
    assert max(later_first["today"]) == 30


def test_what_is_not_logged_is_the_mean_of_what_was_seen(filled: Prometheus) -> None:
    """A run that has neither has a column without a value: a panel without a table would show an error."""
    found = _curve(filled, "KL to the reference, per token", "today", "tensors", "neither")

    assert set(found["today"].values()) == {0.01}
    assert len(found["tensors"]) >= 25
    assert list(found["tensors"].values()) == pytest.approx([0.5] * len(found["tensors"]))
    assert found["neither"] == {}
    assert _curve(filled, "KL to the reference, per token", "neither") == {"neither": {}}


def test_columns_are_in_the_same_order_in_every_panel(filled: Prometheus) -> None:
    """By it each run gets its color."""
    runs = ("neither", "today", "last week")
    orders = {tuple(_shown(filled, each["title"], *runs)) for each in panels(COMPARE) if each["type"] == "trend"}

    assert orders == {("step", "last week", "neither", "today")}


def test_settings_that_differ(filled: Prometheus) -> None:
    """Only those, and what only one of the runs has; of a resumed run those of its newest process."""
    two = _shown(filled, "Settings that differ", "last week", "today")
    same = _shown(filled, "Settings that differ", "last week", "resumed")

    assert two == {"setting": ["beta", "delta"], "last week": [0.04, None], "today": [0.0, 2.0]}
    assert same == {"setting": ["beta"], "last week": [0.04], "resumed": [0.01]}


def test_the_table_of_runs(filled: Prometheus) -> None:
    """How each was set up and how far it came: of a resumed run what its newest process says, of both the best."""
    found = _shown(filled, "Runs", "resumed", "short")

    by_run = {run: i for i, run in enumerate(found["run"])}
    assert set(by_run) == {"resumed", "short"}
    shown = {
        name: [found[name][by_run[run]] for run in ("resumed", "short")]
        for name in ("algorithm", "step", "last reward", "best reward", "started")
    }
    assert shown == {
        "algorithm": ["grpo", "grpo"],
        "step": [4.0, 4.0],
        "last reward": [40.0, 4.0],
        "best reward": [40.0, 4.0],
        "started": [1000 * (END - 2 * DAY), 1000 * (END - 4 * DAY)],
    }


def test_the_runs_of_the_time_that_is_shown_can_be_chosen(filled: Prometheus) -> None:
    """None of them by itself: all runs of a week would be too many lines."""
    run = variable(COMPARE, "run")
    matching = "rl_run_info{" + run["query"]["query"].partition("{")[2].partition("}")[0] + "}"
    matching = View({"job": ".+"}, SHOWN, SCRAPE).fill(matching)
    found = filled.get("series", **{"match[]": matching, "start": str(END - SHOWN), "end": str(END)})

    assert {each["run"] for each in found} == {process.run for process in PROCESSES}
    assert (run["multi"], run["includeAll"], run["refresh"]) == (True, False, 2)
    assert COMPARE["time"] == {"from": "now-7d", "to": "now"}
