"""What `rl:run_cause` names of several conditions: what the page at `/` does, and a process that is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.tools import EACH_GENERATION

EVER = 10**6
TRAINED = (("running", 3000),)


def warns(condition: str, at: int, step: int = 40) -> Event:
    """A condition that warns from then on; it begins in this step."""
    return Event(condition, at, EVER, "warning", step=step)


LIVES: Mapping[str, tuple[Process, Mapping[int, str]]] = {
    "nothing": (Process(TRAINED), {900: ""}),
    "one, and over": (Process(TRAINED, events=[Event("kl_high", 300)]), {290: "", 360: "kl_high", 1800: ""}),
    "the worst": (
        Process(TRAINED, events=[warns("entropy_low", 300, step=19), Event("kl_high", 900, holds=EVER)]),
        {600: "entropy_low", 1200: "kl_high"},
    ),
    "information is none": (Process(TRAINED, events=[Event("solved", 300, EVER, "info")]), {900: ""}),
    "of the worst the earliest": (
        Process(TRAINED, events=[Event("entropy_collapsed", 600, EVER), Event("reward_drop", 300, EVER)]),
        {420: "reward_drop", 1200: "reward_drop"},
    ),
    "the earliest by its warning": (
        Process(
            TRAINED,
            events=[
                Event("reward_drop", 600, EVER),
                warns("kl_high", 300, step=10),
                Event("kl_high", 900, EVER),
            ],
        ),
        {420: "kl_high", 720: "reward_drop", 1200: "kl_high"},
    ),
    "a warning shortly before": (
        Process(TRAINED, events=[warns("kl_high", 300, step=20), Event("truncation", 900, EVER)]),
        {600: "kl_high", 1200: "kl_high"},
    ),
    "before its warning": (
        Process(
            TRAINED,
            events=[warns("kl_high", 300, step=20), warns("truncation", 600), Event("truncation", 900, EVER, step=60)],
        ),
        {450: "kl_high", 1200: "kl_high"},
    ),
    "of two the earlier": (
        Process(
            TRAINED,
            events=[warns("kl_high", 400, step=25), warns("entropy_low", 300, step=24), Event("truncation", 900, EVER)],
        ),
        {1200: "entropy_low"},
    ),
    "before the first of two": (
        Process(
            TRAINED,
            events=[
                warns("kl_high", 300, step=25),
                Event("truncation", 600, EVER),
                Event("reward_drop", 900, EVER, step=100),
            ],
        ),
        {1200: "kl_high"},
    ),
    "a warning that is no cause": (
        Process(TRAINED, events=[warns("step_slow", 300, step=30), Event("truncation", 900, EVER)]),
        {600: "step_slow", 1200: "truncation"},
    ),
    "NaN before all else": (
        Process(
            TRAINED,
            events=[Event("kl_high", 300, EVER), warns("grad_spike", 400), Event("nonfinite_loss", 900, EVER)],
        ),
        {600: "kl_high", 1200: "nonfinite_loss"},
    ),
    "a symptom never": (
        Process(TRAINED, events=[Event("kl_high", 300, EVER, symptom=True), warns("entropy_low", 600)]),
        {420: "", 900: "entropy_low"},
    ),
    "the process before what held": (
        Process((("running", 900), ("failed", 300)), events=[Event("kl_high", 300, EVER)]),
        {600: "kl_high", 960: "run_failed", 2400: "run_failed"},
    ),
    "the NaN it died of": (
        Process((("running", 900), ("failed", 300)), events=[Event("nonfinite_weights", 880)], died_of_nan=True),
        {960: "nonfinite_weights", 2400: "nonfinite_weights"},
    ),
    "gone": (Process((("running", 900),)), {900: "", 1200: "run_vanished"}),
    "hangs, and was sick": (
        Process(TRAINED, hangs=300, stall_after=600, events=[Event("kl_high", 150, EVER)]),
        {840: "kl_high", 960: "run_stalled"},
    ),
    "hangs": (Process(TRAINED, hangs=300, stall_after=600), {840: "", 960: "run_stalled"}),
}


def _called(run: str, process: Process) -> Process:
    return replace(process, run=run)


def _worst(process: Process, time: int) -> str:
    """The worst severity by then; a process that has ended or hangs is critical."""
    trains = sum(seconds for state, seconds in process.states if state == "running")
    begun = {each.severity for each in process.events if each.at <= time and not each.symptom}
    over = time > min(trains, process.hangs + process.stall_after)
    return "critical" if over or "critical" in begun else "warning"


def case() -> dict[str, object]:
    """All of `LIVES` as one test of promtool: one condition of each run or none, with the worst severity of the run."""
    runs = {f"run-{i}": life for i, life in enumerate(LIVES.values())}
    given = {
        name: values
        for run, (process, _) in runs.items()
        for name, values in series([_called(run, process)], 3000).items()
    }
    checks = [
        {
            "expr": f'count by (run, condition, severity) (rl:run_cause{{run="{run}"}})',
            "eval_time": f"{time}s",
            "exp_samples": [
                {"labels": f'{{run="{run}",condition="{name}",severity="{_worst(process, time)}"}}', "value": 1}
            ]
            if name
            else [],
        }
        for run, (process, named) in runs.items()
        for time, name in named.items()
    ]
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": checks,
    }


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_what_is_named(generation: str, tmp_path: Path) -> None:
    """In each generation."""
    assert promtool.run(generation, tmp_path, [case()]) == ""
