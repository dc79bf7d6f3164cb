"""What Prometheus says of a run: the verdict and the cause that the run names, and what no process can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.tools import EACH_GENERATION

FINE, LOOK, ACT = 0, 1, 2
TRAINED = (("running", 3000),)
DIED = (("running", 900), ("failed", 300))
FINISHED = (("running", 900), ("finished", 60))
Said = Mapping[int, tuple[int, str]]


def life(said: Said, *says: tuple[int, int, str], **process: Any) -> tuple[list[Process], Said]:
    """A run of one process that says this of itself, and what is said of it at each time."""
    return [Process(**{"states": TRAINED, "says": ((0, FINE, ""), *says), **process})], said


SICK = Process(DIED, says=((0, FINE, ""), (600, ACT, "nonfinite")), died_of_nan=True)
LIVES: Mapping[str, tuple[list[Process], Said]] = {
    "nothing": life({900: (FINE, "")}),
    "what it names": life({420: (ACT, "kl_high"), 1200: (ACT, "kl_high")}, (300, ACT, "kl_high")),
    "something else": life(
        {420: (LOOK, "kl_jump"), 720: (ACT, "truncation")}, (300, LOOK, "kl_jump"), (600, ACT, "truncation")
    ),
    "over": life({420: (ACT, "kl_high"), 900: (FINE, "")}, (300, ACT, "kl_high"), (600, FINE, "")),
    "what pages is act, though it has eased": life(
        {420: (ACT, "nonfinite"), 870: (ACT, "nonfinite"), 1500: (LOOK, "nonfinite")},
        (300, ACT, "nonfinite"),
        (330, LOOK, "nonfinite"),
        events=(Event("nonfinite", 300),),
    ),
    "what pages is act, though it is over": life(
        {420: (ACT, "ratio_high"), 870: (ACT, "ratio_high"), 1500: (FINE, "")},
        (300, ACT, "ratio_high"),
        (330, FINE, ""),
        events=(Event("ratio_high", 300),),
    ),
    "what warns is what the run says": life(
        {420: (FINE, ""), 870: (FINE, "")},
        (300, LOOK, "kl_jump"),
        (330, FINE, ""),
        events=(Event("kl_jump", 300, severity="warning"),),
    ),
    "the process before what held": life(
        {600: (ACT, "kl_high"), 960: (ACT, "run_failed"), 2400: (ACT, "run_failed")},
        (300, ACT, "kl_high"),
        states=DIED,
    ),
    "the NaN that it died of": life(
        {960: (ACT, "nonfinite"), 2400: (ACT, "nonfinite")},
        (885, ACT, "nonfinite"),
        states=DIED,
        died_of_nan=True,
        events=(Event("nonfinite", 885),),
    ),
    "NaN long ago, and another death": life(
        {960: (ACT, "run_failed"), 2400: (ACT, "run_failed")}, (300, LOOK, "nonfinite"), states=DIED
    ),
    "gone": life({900: (FINE, ""), 1200: (ACT, "run_vanished")}, states=DIED[:1]),
    "hangs": life({840: (FINE, ""), 960: (ACT, "run_stalled")}, hangs=300),
    "ended well": life({960: (FINE, ""), 2400: (FINE, "")}, states=FINISHED),
    "ended as it was": life(
        {960: (LOOK, "reward_hacking"), 2400: (LOOK, "reward_hacking")}, (300, LOOK, "reward_hacking"), states=FINISHED
    ),
    "another attempt is well": (
        [SICK, Process(TRAINED, born=1320, instance="h:2", says=((0, FINE, ""),))],
        {1200: (ACT, "nonfinite"), 1800: (FINE, "")},
    ),
    "another attempt is sick too": (
        [SICK, Process(TRAINED, born=1320, instance="h:2", says=((0, FINE, ""), (1500, LOOK, "kl_jump")))],
        {1800: (LOOK, "kl_jump")},
    ),
    "another attempt dies of something else": (
        [SICK, Process(DIED, born=1320, instance="h:2", says=((0, FINE, ""),))],
        {2280: (ACT, "run_failed")},
    ),
    "another rank": (
        [
            Process(TRAINED, says=((0, FINE, ""),)),
            Process(TRAINED, instance="h:2", rank=3, says=((300, ACT, "nonfinite"),)),
        ],
        {240: (FINE, ""), 420: (ACT, "nonfinite")},
    ),
}


def case() -> dict[str, object]:
    """All of `LIVES` as one test of promtool."""
    runs = {f"run-{i}": life for i, life in enumerate(LIVES.values())}
    given = {
        name: values
        for run, (processes, _) in runs.items()
        for name, values in series([replace(each, run=run) for each in processes], 3000).items()
    }
    checks = []
    for run, (_, said) in runs.items():
        for time, (word, name) in said.items():
            of = f'run="{run}"'
            checks += [
                promtool.check(f"max by (run) (rl:run_verdict{{{of}}})", time, {f"{{{of}}}": word}),
                promtool.check(
                    f"count by (run, condition) (rl:run_cause{{{of}}})",
                    time,
                    {f'{{{of},condition="{name}"}}': 1} if name else {},
                ),
            ]
    return promtool.of(given, checks)


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_what_is_said_of_a_run(generation: str, tmp_path: Path) -> None:
    """In each generation."""
    assert promtool.run(generation, tmp_path, [case()]) == ""
