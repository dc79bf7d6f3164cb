"""At whatever pace a run goes, its heatmaps are filled: hours of it, back-filled into a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.dashboards.grafana import ANY, WRITTEN, View, asking, panels, values, variable
from tests.dashboards.past import END, SCRAPE, Past, blocks
from tests.tools import Prometheus, prometheus

RUN = WRITTEN["rlexporter-run"]
_SERVED = {
    *("rl_step_time_seconds", "rl_step_duration_seconds", "rl_last_step_timestamp_seconds", "rl_run_state"),
    "rl_reward_dist",
}
_SHOWN = 4 * 3600.0


def _always(seconds: float) -> Callable[[int], float]:
    return lambda step: seconds


def _generations(step: int) -> float:
    """One generation serves four steps: it takes five minutes, the others a few seconds."""
    return 300.0 if step % 4 == 1 else 5.0


def _uneven(step: int) -> float:
    """Around two minutes, now and then half as long again; with an evaluation of ten minutes in between."""
    return 600.0 if step == 60 else 120.0 * (1.0, 1.3, 0.8, 1.1, 0.9, 1.5)[step % 6]


PACES = {
    "0.1 s": _always(0.1),
    "5 min": _always(300.0),
    "30 min": _always(1800.0),
    "generations": _generations,
    "uneven": _uneven,
    "shared": _always(30.0),
}
_STEPS_PER_BATCH = {"shared": 8}
"""Rewards come with a generation; here one is for so many steps."""


def _played(run: str) -> Iterator[bytes]:
    """All scrapes of a run at its pace, some hours of it, as OpenMetrics."""
    pace, each = PACES[run], _STEPS_PER_BATCH.get(run, 1)
    past, step = Past(run, 3600.0 * (12 if pace(1) > 1000 else 5), _SERVED), 0
    while past.now < END:
        step += 1
        duration = pace(step)
        seen = {"rl_reward_dist": [0.5, 1.5]} if step % each == 0 else {}
        # Between two scrapes ten steps of 0.1 s look as a hundred and fifty do.
        past.step({"step_time": duration}, step, duration, clock=max(duration, 1.5), seen=seen)
    return past.text()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus that knows a run of each pace."""
    folder = tmp_path_factory.mktemp("filled")
    for run in PACES:
        blocks(folder / "data", _played(run))
    with prometheus("3", folder, []) as server:
        yield server


def _view(run: str, window: str = "") -> View:
    return View(
        {**ANY, "job": "rlexporter", "run": run, "window": window}, 12 * 3600.0 if run == "30 min" else _SHOWN, SCRAPE
    )


def _window(server: Prometheus, run: str) -> str:
    """The value of the variable, at the end of the run."""
    [found] = values(asking(server), _view(run), variable(RUN, "window"), END - 1)
    return found


def _share(server: Prometheus, run: str, window: str, *, finest: bool = True) -> float:
    """The share of columns of the reward's heatmap in which something is counted."""
    view = _view(run, window)
    panel = next(each for each in panels(RUN) if each["title"] == "Reward" and each["type"] == "heatmap")
    step = float(window) if finest else view.interval(panel, panel["targets"][0])
    columns = int(view.seconds // step) - 2
    found = server.get(
        "query_range",
        query=view.fill(panel["targets"][0]["expr"], step),
        start=str(END - 1 - columns * step),
        end=str(END - 1),
        step=str(step),
    )["result"]
    counted = [value for each in found if each["metric"]["le"] == "+Inf" for _, value in each["values"]]
    return sum(float(value) > 0 for value in counted) / (columns + 1)


@pytest.mark.slow
def test_columns_are_filled(filled: Prometheus) -> None:
    """At least 95 of 100, with columns as narrow as they get, and as Grafana asks for them."""
    windows = {run: _window(filled, run) for run in PACES}
    shares = {
        (run, finest): _share(filled, run, window, finest=finest)
        for run, window in windows.items()
        for finest in (True, False)
    }

    assert {run: window for run, window in windows.items() if int(window) < 60} == {}
    assert {which: share for which, share in shares.items() if share < 0.95} == {}


@pytest.mark.slow
def test_the_window_follows_the_pace(filled: Prometheus) -> None:
    """Not wider than it has to be, or a distribution that changes is smeared."""
    windows = {run: int(_window(filled, run)) for run in PACES}

    assert windows["0.1 s"] == 60
    assert 300 < windows["5 min"] <= 400
    assert 1800 < windows["30 min"] <= 2400
    assert 300 < windows["generations"] <= 400
    assert 180 < windows["uneven"] <= 300
    assert 240 < windows["shared"] <= 340
