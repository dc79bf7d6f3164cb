"""What `rl:run_cause` names of several conditions: what the page at `/` does, and a process that is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.tools import EACH_GENERATION

EVER = 10**6
TRAINED = (("running", 3000),)


def warns(condition: str, at: int, step: int = 40) -> Event:
    """A condition that warns from then on; it begins in this step."""
    return Event(condition, at, EVER, "warning", step=step)


def stays(condition: str, at: int, step: int = 40, *, symptom: bool = False) -> Event:
    """A critical one."""
    return Event(condition, at, EVER, step=step, symptom=symptom)


def life(named: Mapping[int, str], *events: Event, **process: Any) -> tuple[Process, Mapping[int, str]]:
    """A run with these conditions, and what is named at each time."""
    return Process(**{"states": TRAINED, "events": events, **process}), named


DIED = (("running", 900), ("failed", 300))
LIVES: Mapping[str, tuple[Process, Mapping[int, str]]] = {
    "nothing": life({900: ""}),
    "one, and over": life({290: "", 360: "kl_high", 1800: ""}, Event("kl_high", 300)),
    "the worst": life({600: "entropy_low", 1200: "kl_high"}, warns("entropy_low", 300, 19), stays("kl_high", 900)),
    "information is none": life({900: ""}, Event("solved", 300, EVER, "info")),
    "of the worst the earliest": life(
        {420: "reward_drop", 1200: "reward_drop"}, stays("entropy_collapsed", 600), stays("reward_drop", 300)
    ),
    "the earliest by its warning": life(
        {420: "kl_high", 720: "reward_drop", 1200: "kl_high"},
        stays("reward_drop", 600),
        warns("kl_high", 300, 10),
        stays("kl_high", 900),
    ),
    "a warning shortly before": life(
        {600: "kl_high", 1200: "kl_high"}, warns("kl_high", 300, 20), stays("truncation", 900)
    ),
    "before its warning": life(
        {450: "kl_high", 1200: "kl_high"},
        warns("kl_high", 300, 20),
        warns("truncation", 600),
        stays("truncation", 900, 60),
    ),
    "of two the earlier": life(
        {1200: "entropy_low"},
        warns("kl_high", 400, 25),
        warns("entropy_low", 300, 24),
        stays("truncation", 900),
    ),
    "before the first of two": life(
        {1200: "kl_high"},
        warns("kl_high", 300, 25),
        stays("truncation", 600),
        stays("reward_drop", 900, 100),
    ),
    "a warning that is no cause": life(
        {600: "step_slow", 1200: "truncation"}, warns("step_slow", 300, 30), stays("truncation", 900)
    ),
    "NaN before all else": life(
        {600: "kl_high", 1200: "nonfinite_loss"},
        stays("kl_high", 300),
        warns("grad_spike", 400),
        stays("nonfinite_loss", 900),
    ),
    "a symptom never": life(
        {420: "", 900: "entropy_low"}, stays("kl_high", 300, symptom=True), warns("entropy_low", 600)
    ),
    "the process before what held": life(
        {600: "kl_high", 960: "run_failed", 2400: "run_failed"}, stays("kl_high", 300), states=DIED
    ),
    "the NaN it died of": life(
        {960: "nonfinite_weights", 2400: "nonfinite_weights"},
        Event("nonfinite_weights", 880),
        states=DIED,
        died_of_nan=True,
    ),
    "gone": life({900: "", 1200: "run_vanished"}, states=DIED[:1]),
    "hangs, and was sick": life({840: "kl_high", 960: "run_stalled"}, stays("kl_high", 150), hangs=300),
    "hangs": life({840: "", 960: "run_stalled"}, hangs=300),
}


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
        for name, values in series([replace(process, run=run)], 3000).items()
    }
    checks = [
        promtool.check(
            f'count by (run, condition, severity) (rl:run_cause{{run="{run}"}})',
            time,
            {f'{{run="{run}",condition="{name}",severity="{_worst(process, time)}"}}': 1} if name else {},
        )
        for run, (process, named) in runs.items()
        for time, name in named.items()
    ]
    return promtool.of(given, checks)


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_what_is_named(generation: str, tmp_path: Path) -> None:
    """In each generation."""
    assert promtool.run(generation, tmp_path, [case()]) == ""
