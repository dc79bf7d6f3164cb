"""Panels of counters that are absent at 0 show the first event, a later one, and one after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlexporter.generate.dashboards.panels import grown
from tests.alerts import promtool
from tests.dashboards.grafana import View
from tests.tools import EACH_GENERATION

_COUNTER = "rl_nonfinite_values_total"
_SCRAPES = {
    # Born at 3 in the fifth minute; 2 more in the twentieth.
    "grows": "_x20 3x59 5x40",
    # A process that had 7, and died with them; the next one is absent, then born at 1 in the eleventh minute.
    "restarted": "7x20 stale _x22 1x60",
}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_growth_is_seen_from_the_first_event(generation: str, tmp_path: Path) -> None:
    """By a window of a minute, at 15 seconds a scrape; `increase` alone is empty at the birth."""
    view = View({"job": "j", "run": "r"}, 3600.0, 15.0)
    expression = view.fill(f"round(sum by (run) {grown(_COUNTER, '')} > 0)")
    alone = f"round(sum by (run) (increase({_COUNTER}[1m])) > 0)"

    def shown(expression: str, time: str, **runs: int) -> dict[str, object]:
        samples = [{"labels": f'{{run="{run}"}}', "value": value} for run, value in runs.items()]
        return {"expr": expression, "eval_time": time, "exp_samples": samples}

    tests: dict[str, object] = {
        "interval": "15s",
        "input_series": [{"series": f'{_COUNTER}{{run="{run}"}}', "values": v} for run, v in _SCRAPES.items()],
        "promql_expr_test": [
            shown(expression, "4m"),
            shown(expression, "5m30s", grows=3),
            shown(alone, "5m30s"),
            shown(expression, "8m"),
            shown(expression, "11m30s", restarted=1),
            shown(expression, "15m"),
            shown(expression.replace("round", "sgn"), "20m30s", grows=1),  # `increase` extrapolates
            shown(expression, "24m"),
        ],
    }
    assert promtool.run(generation, tmp_path, [tests]) == ""
