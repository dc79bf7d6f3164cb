"""Many runs that break at once are one message, which names them; what breaks later is told by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rlexporter.catalog.alerts import RUNBOOKS
from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.alerts.promtool import Case, alone
from tests.tools import EACH_GENERATION

HOUR = 3600


def lasting(run: str, seconds: int, severity: str = "critical", cluster: str = "", **conditions: int) -> Process:
    """A run in which conditions begin, each at its time, and do not end."""
    events = [Event(condition, at, holds=10**6, severity=severity) for condition, at in conditions.items()]
    labels = {"cluster": cluster} if cluster else {}
    return Process([("running", seconds)], run=run, instance=f"{run}:1", labels=labels, events=events)


def sick(run: str, at: int, seconds: int, severity: str = "critical", cluster: str = "") -> Process:
    """A run that is too far from its reference from then on."""
    return lasting(run, seconds, severity, cluster, kl_high=at)


def failing(run: str, born: int, trains: int = 600) -> Process:
    """A run that fails after so many seconds; each attempt is in another place."""
    return Process([("running", trains), ("failed", 30)], born, f"{run}:{born}", run)


def case(processes: Sequence[Process], seconds: int, expect: Mapping[int, Mapping[str, Sequence[str]]]) -> Case:
    """These runs for so long, and which of them each alert names at which time."""
    return Case(series(processes, seconds), {f"{time}s": alerts for time, alerts in expect.items()})


def runs(number: int, first: int = 0) -> list[str]:
    return [f"r{i}" for i in range(first, first + number)]


FIVE, TWENTY = runs(5), runs(20)
SIX = ("nonfinite", "kl_high", "reward_drop", "entropy_collapsed", "grad_explosion", "ratio_high")
"""Conditions of six kinds."""
STORMS = {
    "five at once, for hours; then a sixth": case(
        [*(sick(run, 600, 3 * HOUR) for run in FIVE), sick("r5", 2 * HOUR, 3 * HOUR), lasting("r6", 3 * HOUR)],
        3 * HOUR,
        {
            590: {"RLManyRunsSick": []},
            615: {"RLManyRunsSick": FIVE, "RLKL/critical": FIVE},
            1400: {"RLManyRunsSick": FIVE},
            7000: {"RLManyRunsSick": FIVE},
            2 * HOUR + 15: {"RLManyRunsSick": FIVE, "RLKL/critical": [*FIVE, "r5"]},
            3 * HOUR - 60: {"RLManyRunsSick": FIVE},
        },
    ),
    "one after the other: named as they come": case(
        [sick(run, 600 + 120 * i, 5000) for i, run in enumerate(runs(8))],
        5000,
        {
            1000: {"RLManyRunsSick": []},
            1095: {"RLManyRunsSick": FIVE},
            1215: {"RLManyRunsSick": runs(6)},
            1455: {"RLManyRunsSick": runs(8)},
            4900: {"RLManyRunsSick": runs(8)},
        },
    ),
    "four are no storm": case(
        [sick(run, 600, 2000) for run in runs(4)],
        2000,
        {615: {"RLManyRunsSick": []}, 1500: {"RLManyRunsSick": [], "RLKL/critical": runs(4)}},
    ),
    "nor five in two hours": case(
        [sick(run, 600 + 1500 * i, 8000) for i, run in enumerate(FIVE)],
        8000,
        {time: {"RLManyRunsSick": []} for time in range(600, 8000, 300)},
    ),
    "nor five of two hundred": case(
        [*(sick(run, 600, 900) for run in FIVE), *(lasting(run, 900) for run in runs(195, 5))],
        900,
        {660: {"RLManyRunsSick": [], "RLKL/critical": FIVE}},
    ),
    "a member that is well again is none any more": case(
        [
            *(sick(run, 600, 3000) for run in runs(4)),
            Process([("running", 3000)], run="r4", instance="r4:1", events=[Event("kl_high", 600, holds=600)]),
        ],
        3000,
        {700: {"RLManyRunsSick": FIVE}, 2000: {"RLManyRunsSick": runs(4)}},
    ),
    "what a member gets later is no part of the storm": case(
        [*(sick(run, 600, 5000) for run in runs(4)), lasting("r4", 5000, kl_high=600, ratio_high=3000)],
        5000,
        {700: {"RLManyRunsSick": FIVE}, 3030: {"RLRatio/critical": ["r4"], "RLManyRunsSick": FIVE}},
    ),
    "killed together": case(
        [lasting(run, 600) for run in TWENTY],
        2000,
        {750: {"RLManyRunsSick": []}, 860: {"RLManyRunsSick": TWENTY, "RLRunVanished/run_vanished": TWENTY}},
    ),
    "failed together, all back, and one fails alone": case(
        [
            *(failing(run, 0) for run in FIVE),
            failing("r0", 1200, trains=1200),
            *(Process([("running", 3600)], 1200, f"{run}:2", run) for run in FIVE[1:]),
        ],
        4800,
        {
            660: {"RLManyRunsSick": FIVE, "RLRunFailed/run_failed": FIVE},
            1230: {"RLManyRunsSick": [], "RLRunFailed/run_failed": []},
            2430: {"RLManyRunsSick": [], "RLRunFailed/run_failed": ["r0"]},
            3600: {"RLManyRunsSick": [], "RLRunFailed/run_failed": ["r0"]},
        },
    ),
    "of a storm of warnings one gets worse": case(
        [*(sick(run, 600, 2000, "warning") for run in FIVE), sick("r0", 900, 2000)],
        2000,
        {
            800: {"RLManyRunsSick/warning": FIVE, "RLKL/critical": []},
            960: {"RLManyRunsSick/warning": FIVE, "RLManyRunsSick/critical": [], "RLKL/critical": ["r0"]},
        },
    ),
    "warnings have a storm of their own": case(
        [sick(run, 600, 2000, "warning") for run in FIVE],
        2000,
        {630: {"RLManyRunsSick/warning": FIVE, "RLManyRunsSick/critical": []}, 1900: {"RLManyRunsSick/warning": FIVE}},
    ),
    "six faults that have nothing to do with each other": case(
        [
            *(lasting(f"r{i}", 2000, "critical", "", **{name: 600 + 60 * i}) for i, name in enumerate(SIX[:4])),
            Process([("running", 900), ("failed", 60)], instance="r4:1", run="r4"),
            Process([("running", 700)], instance="r5:1", run="r5"),
            *(lasting(run, 2000) for run in runs(10, 6)),
        ],
        2000,
        {time: {"RLManyRunsSick": []} for time in range(600, 2000, 150)}
        | {1100: {"RLRunFailed/run_failed": ["r4"], "RLRunVanished/run_vanished": ["r5"], "RLManyRunsSick": []}},
    ),
    "processes that end in different ways are of one kind": case(
        [
            *(Process([("running", 900), ("failed", 60)], instance=f"{run}:1", run=run) for run in runs(2)),
            *(Process([("running", 700)], instance=f"{run}:1", run=run) for run in runs(2, 2)),
            Process([("running", 2000)], instance="r4:1", run="r4", hangs=330),
        ],
        2000,
        {900: {"RLManyRunsSick": []}, 1200: {"RLManyRunsSick": FIVE}},
    ),
    "another fault in a storm is told by itself": case(
        [*(sick(run, 600, 2000) for run in FIVE), lasting("r5", 2000, entropy_collapsed=660)],
        2000,
        {750: {"RLManyRunsSick": FIVE, "RLEntropy/critical": ["r5"]}, 1900: {"RLManyRunsSick": FIVE}},
    ),
    "ten faults of any kind": case(
        [lasting(f"r{i}", 2000, "critical", "", **{name: 600}) for i, name in enumerate((*SIX[:5], *SIX[:5]))],
        2000,
        {615: {"RLManyRunsSick": runs(10)}, 1900: {"RLManyRunsSick": runs(10)}},
    ),
    "clusters are apart": case(
        [sick(run, 600, 2000, cluster="one" if i < 3 else "two") for i, run in enumerate(runs(6))],
        2000,
        {630: {"RLManyRunsSick": []}},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_storms(generation: str, tmp_path: Path) -> None:
    """Each at times at which it must be silent, and at times at which it must fire."""
    assert promtool.run(generation, tmp_path, [alone(case) for case in STORMS.values()], every="30s") == ""


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize(("severity", "became"), [("critical", "became sick"), ("warning", "began to warn")])
def test_a_storm_says_of_how_many_runs(generation: str, severity: str, became: str, tmp_path: Path) -> None:
    """And of those that are seen how many there are."""
    processes = [*(sick(run, 600, 900, severity) for run in FIVE), lasting("r5", 900)]
    labels = {"job": "rl", "namespace": "ml", "condition": "kl_high", "severity": severity, "family": "storm"}
    notes = {
        "summary": "Five or more runs became sick within a quarter of an hour.",
        "description": f"5 of the 6 runs {became} within a quarter of an hour.",
        "runbook_url": f"{RUNBOOKS}/RLManyRunsSick.md",
    }
    told = [{"exp_labels": labels | {"run": run}, "exp_annotations": notes} for run in FIVE]
    said = [{"alertname": "RLManyRunsSick", "eval_time": "11m", "exp_alerts": told}]
    check = promtool.check('count(ALERTS{alertname="RLManyRunsSick",condition="kl_high"})', 2400, {"{}": 5})
    one = promtool.of(series(processes, 2400), [check] if severity == "critical" else [check | {"exp_samples": []}])
    assert promtool.run(generation, tmp_path, [one | {"alert_rule_test": said}], every="30s") == ""


@pytest.mark.slow
@pytest.mark.parametrize(("later", "stands_for"), [(300, 2), (2400, 1)])
def test_it_stands_for_what_began_in_it(later: int, stands_for: int, tmp_path: Path) -> None:
    """Alertmanager hides by run and condition: what a member gets after the storm is not hidden by it."""
    processes = [*(sick(run, 600, 5000) for run in runs(4)), lasting("r4", 5000, kl_high=600, ratio_high=600 + later)]
    check = promtool.check(
        'count(ALERTS{alertname="RLManyRunsSick",alertstate="firing",run="r4"})', 4000, {"{}": stands_for}
    )
    assert promtool.run("3", tmp_path, [promtool.of(series(processes, 5000), [check])], every="30s") == ""
