"""A run of two minutes, as the demo is when somebody first looks at it: its curves have a point a scrape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dashboards.grafana import DASHBOARDS, View, answers, asking, panels, resolved
from tests.dashboards.past import END, SCRAPE, Past, blocks
from tests.tools import Prometheus, prometheus

RUN = DASHBOARDS["rlexporter-run"]
_LOGGED = {"reward": 1.0, "kl": 0.1, "entropy": 1.0, "grad_norm": 0.5, "step_time": 0.4, "num_tokens": 0.0}
_NEEDED = {
    *("rl_step", "rl_reward_mean", "rl_kl_per_token", "rl_entropy_per_token", "rl_grad_norm", "rl_step_time_seconds"),
    *("rl_step_duration_seconds", "rl_reward_dist", "rl_run_info", "rl_run_state", "rl_run_start_timestamp_seconds"),
    *("rl_last_step_timestamp_seconds", "rl_steps_total"),
}
_SECONDS, _STEP = 150.0, 0.4


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus that has scraped the run since it began."""
    folder = tmp_path_factory.mktemp("short")
    past = Past("short", _SECONDS, _NEEDED)
    for step in range(1, round(_SECONDS / _STEP)):
        wave = 1.0 + 0.1 * (step % 7)
        logs = {name: value * wave for name, value in _LOGGED.items()}
        past.step({**logs, "num_tokens": 100.0 * step}, step, _STEP, seen={"rl_reward_dist": [0.5, wave]})
    past.scrape()
    blocks(folder / "data", past.text())
    with prometheus("3", folder, []) as server:
        yield server


@pytest.mark.parametrize("shown", [900.0, 10_800.0])
@pytest.mark.parametrize(
    "title", ["Reward", "KL", "Entropy", "Gradient norm", "Step time", "Tokens, episodes and steps per second"]
)
def test_its_curves_have_a_point_a_scrape(filled: Prometheus, title: str, shown: float) -> None:
    """Gauges each one that was scraped; rates as soon as there are two of them. So in a quarter of an hour, which the
    demo opens with; in three hours, where points are further apart than scrapes, all that there are.
    """
    ask = asking(filled)
    view = resolved(ask, View({"job": ".+", "run": "short"}, shown, SCRAPE, aligned=True), RUN, END - 1)
    of = next(each for each in panels(RUN) if each["title"] == title)
    found = [series for answer in answers(ask, view, of, END - 1, 500).values() for series in answer]
    apart = view.interval(of, of["targets"][0], 500)

    assert apart <= 2 * SCRAPE
    assert found
    assert min(len(series["values"]) for series in found) >= _SECONDS / apart - 3


"""Two at the edges, and one before the second scrape."""


def test_what_is_rated_looks_back_over_four_scrapes(filled: Prometheus) -> None:
    """As Grafana works it out where a target asks for an interval of its own: four times that."""
    view = resolved(asking(filled), View({"job": ".+", "run": "short"}, 900.0, SCRAPE), RUN, END - 1)
    of = next(each for each in panels(RUN) if each["title"] == "Step time")
    [target] = of["targets"][:1]
    interval = view.interval(of, target)

    assert (interval, view.fill("$__rate_interval", interval, view.least(target))) == (SCRAPE, "60000ms")
