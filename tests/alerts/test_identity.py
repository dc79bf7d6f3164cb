"""Runs of one name that a label tells apart: each alert says what is of its own run, whatever the other one is like.

And whatever a run serves twice: no rule may fail for it, since a rule that fails tells nothing of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.conditions.causes import FATAL
from rlexporter.conditions.table import CONDITIONS
from scripts.pack.promql import NONFINITE
from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.alerts.test_rules import ALERTS, LOOK
from tests.tools import EACH_GENERATION

PAIRS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "two teams": ({"team": "x"}, {"team": "y"}),
    "two users of a team": ({"team": "x", "user": "ada"}, {"team": "x", "user": "bob"}),
    "a team and none": ({"team": "x"}, {}),
    "none and a user": ({}, {"user": "ada"}),
    "a label of their own": ({"project": "math"}, {"project": "code"}),
    "two jobs": ({"job": "a"}, {"job": "b"}),
}


def _said(alert: str, labels: Mapping[str, str], description: str, condition: str, **notes: str) -> dict[str, Any]:
    rule = next(rule for rule in ALERTS if rule["alert"] == alert)
    own = {name: value for name, value in rule["labels"].items() if value and "{{" not in value}
    return {
        "exp_labels": {"run": "shared", "job": "rl", "namespace": "ml", "condition": condition, **own, **labels},
        "exp_annotations": {
            "summary": rule["annotations"]["summary"],
            "description": f"Run shared{description}",
            "runbook_url": f"{RUNBOOKS}/{alert}.md",
            **notes,
        },
    }


def _incident(subject: str, condition: str = "grad_explosion", unit: str = "") -> str:
    of = {"condition": condition, "severity": "critical", "subject": subject, "cause": "", "unit": unit}
    return "rl_incident{" + ",".join(f'{name}="{value}"' for name, value in of.items()) + "}"


def _gradient(labels: Mapping[str, str], severity: str, description: str, action: str, cause: str) -> dict[str, Any]:
    found = _said("RLGradient", {"severity": severity, **labels}, description, "grad_explosion")
    notes = {"summary": "The gradient norm explodes.", "action": action, "cause": cause}
    return found | {"exp_annotations": found["exp_annotations"] | notes}


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("pair", PAIRS)
def test_each_says_what_is_its_own(generation: str, pair: str, tmp_path: Path) -> None:
    """Subject, step, value, limit, checkpoint, hours and cause of an alert, in both runs at the same time."""
    one, two = PAIRS[pair]
    lives = [
        Process(
            [("running", 3000)],
            run="shared",
            instance="1",
            labels=one,
            events=[Event("grad_explosion", 300, 10**6, value=900.0, threshold=10.0, step=900)],
            more={_incident("first"): 2.0, "rl_last_good_checkpoint_step": 850.0, "rl_gpus": 8.0},
            says=[(300, 2, "grad_explosion")],
        ),
        Process(
            [("running", 3000)],
            run="shared",
            instance="2",
            labels=two,
            events=[Event("grad_explosion", 330, 10**6, "warning", value=5.0, threshold=3.0, step=7)],
            more={_incident("second", unit="nats").replace("critical", "warning"): 2.0},
            says=[(330, 1, "kl_jump")],
        ),
    ]
    stop = "Stop the run if it still runs, and resume from the checkpoint of step 850."
    hours = " The last good checkpoint is that of step 850. 3.3 GPU hours were spent since it went wrong."
    told = [
        _gradient(one, "critical", f", first, step 900: 900, limit 10.{hours}", stop, "grad_explosion"),
        _gradient(two, "warning", ", second, step 7: 5 nats, limit 3.", LOOK, "kl_jump"),
    ]
    said = [{"alertname": "RLGradient", "eval_time": "30m", "exp_alerts": told}]
    test = promtool.of(series(lives, 1900), [promtool.check("vector(1)", 0, {"{}": 1})])
    assert promtool.run(generation, tmp_path, [test | {"alert_rule_test": said}]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("pair", PAIRS)
def test_each_has_its_own_end(generation: str, pair: str, tmp_path: Path) -> None:
    """One has failed with its exception, the other hangs in its phase; later each has the other's fate."""
    one, two = PAIRS[pair]
    died = [("running", 300), ("failed", 10**6)]
    lives = [
        Process(
            died,
            run="shared",
            instance="1",
            labels=one,
            steps=[100],
            more={'rl_run_exception_info{exception="ValueError"}': 1.0, "rl_last_good_checkpoint_step": 90.0},
        ),
        Process(
            [("running", 10**6)],
            run="shared",
            instance="2",
            labels=two,
            steps=[7],
            hangs=100,
            more={'rl_phase{phase="reward"}': 1.0, 'rl_phase{phase="update"}': 0.0},
        ),
    ]
    end = ": it has ended with ValueError. Its last step was 100. The last good checkpoint is that of step 90."
    hang = ": no step has ended for 13m 20s, in the phase reward."
    said = [
        {
            "alertname": alert,
            "eval_time": "15m",
            "exp_alerts": [_said(alert, labels, text, condition, cause=condition)],
        }
        for alert, labels, text, condition in (
            ("RLRunFailed", one, end, "run_failed"),
            ("RLRunStalled", two, hang, "run_stalled"),
        )
    ]
    test = promtool.of(series(lives, 1000), [promtool.check("vector(1)", 0, {"{}": 1})])
    assert promtool.run(generation, tmp_path, [test | {"alert_rule_test": said}]) == ""


def _firing(expected: Mapping[str, int], seconds: int) -> list[dict[str, object]]:
    """How many alerts of a name fire then."""
    return [
        promtool.check(
            f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', seconds, {"{}": number} if number else {}
        )
        for name, number in expected.items()
    ]


HELD = Event("grad_explosion", 300, 10**6, step=40)


def _begun_again(at: int, step: int) -> Event:
    return Event("grad_explosion", at, 10**6, step=step, threshold=step / 7, value=float(step))


TWICE: Mapping[str, Sequence[Process]] = {
    "several subjects at once": [
        Process([("running", 3000)], events=[HELD], more={_incident(each): 2.0 for each in ("a", "b", "a, b")})
    ],
    "several units and causes": [
        Process([("running", 3000)], events=[HELD], more={_incident("a", unit=each): 2.0 for each in ("", "nats")})
    ],
    "many ranks, which differ": [
        Process(
            [("running", 3000)],
            rank=rank,
            instance=f"h:{rank}",
            events=[_begun_again(300 + rank, 40 + rank)],
            more={_incident(f"rank {rank}"): 2.0},
            says=[(300, 2, f"cause_{rank}")],
        )
        for rank in range(4)
    ],
    "two attempts, of which the old one stays": [
        Process([("running", 3000)], events=[HELD], more={_incident("old"): 2.0}, says=[(300, 2, "old")]),
        Process(
            [("running", 2000)],
            born=600,
            instance="h:2",
            events=[_begun_again(630, 5)],
            more={_incident("new"): 2.0},
            says=[(630, 2, "new")],
        ),
    ],
    "two attempts that began in the same second": [
        Process([("running", 3000)], events=[HELD], more={_incident("a"): 2.0}, says=[(300, 2, "a")]),
        Process([("failed", 3000)], instance="h:2", events=[HELD], more={_incident("b"): 2.0}, says=[(300, 2, "b")]),
    ],
    "the same process scraped at two addresses": [
        Process([("running", 3000)], instance=each, events=[HELD], more={_incident(each): 2.0})
        for each in ("h:1", "s:1")
    ],
    "a restart in the same place": [
        Process([("running", 600)], events=[HELD], more={_incident("a"): 2.0}),
        Process([("running", 2000)], born=615, events=[_begun_again(630, 3)], more={_incident("b"): 2.0}),
    ],
    "several exceptions and phases": [
        Process(
            [("running", 300), ("failed", 3000)],
            events=[HELD],
            more={
                'rl_run_exception_info{exception="A"}': 1.0,
                'rl_run_exception_info{exception="B"}': 1.0,
                'rl_phase{phase="reward"}': 1.0,
                'rl_phase{phase="update"}': 1.0,
            },
        )
    ],
    "warning and critical of one condition, and one incident": [
        Process(
            [("running", 3000)],
            events=[HELD, Event("grad_explosion", 290, 10**6, "warning")],
            more={_incident("a"): 2.0},
        )
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
@pytest.mark.parametrize("name", TWICE)
def test_what_is_there_twice_fails_no_rule(generation: str, name: str, tmp_path: Path) -> None:
    """promtool fails where a rule does; and the alert is there, once for each severity."""
    severities = {event.severity for process in TWICE[name] for event in process.events}
    checks = _firing({"RLGradient": len(severities)}, 345) + _firing({"RLGradient": len(severities)}, 900)
    assert promtool.run(generation, tmp_path, [promtool.of(series(TWICE[name], 1900), checks)]) == ""


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_what_changes_in_the_middle_is_no_other_alert(generation: str, tmp_path: Path) -> None:
    """Step, limit, subject, checkpoint and cause: the alert goes on, with what is newest."""
    first = [
        Process([("running", 3000)], events=[HELD], more={_incident("a"): 2.0, "rl_last_good_checkpoint_step": 30.0})
    ]
    later = [
        Process(
            [("running", 3000)],
            events=[_begun_again(600, 70)],
            more={_incident("a, b", unit="nats"): 2.0, "rl_last_good_checkpoint_step": 60.0},
            says=[(0, 2, "grad_explosion")],
        )
    ]
    before, after = series(first, 1500), series(later, 1500)
    given = {}
    for name in {**before, **after}:
        words = [_spelled(each.get(name, "_x101"), 101) for each in (before, after)]
        given[name] = " ".join([*words[0][:40], *(["stale"] if name not in after else words[1][40:41]), *words[1][41:]])
    labels = {"severity": "critical"}
    stop = "Stop the run if it still runs, and resume from the checkpoint of step {}."
    good = " The last good checkpoint is that of step {}."
    told = {
        "9m": (", a, step 40: 7, limit 3." + good.format(30), stop.format(30), ""),
        "11m": (", a, b, step 70: 70 nats, limit 10." + good.format(60), stop.format(60), "grad_explosion"),
    }
    said = []
    for time, notes in told.items():
        one = _gradient(labels, "critical", *notes)
        one["exp_labels"]["run"] = "a"
        one["exp_annotations"]["description"] = one["exp_annotations"]["description"].replace("shared", "a")
        said.append({"alertname": "RLGradient", "eval_time": time, "exp_alerts": [one]})
    same = promtool.check('count(count_over_time(ALERTS{alertname="RLGradient"}[10m]))', 900, {"{}": 1})
    test = promtool.of(given, [same])
    assert promtool.run(generation, tmp_path, [test | {"alert_rule_test": said}]) == ""


def _spelled(values: str, number: int) -> list[str]:
    """The short form of promtool, a word a value."""
    words = []
    for word in values.split():
        value, times, count = word.partition("x")
        words += [value] * (int(count) + (value != "_") if times else 1)
    return words[:number] + ["_"] * (number - len(words))


def test_a_rule_that_fails_is_found(tmp_path: Path) -> None:
    """As the tests above rely on promtool for that."""
    rules = tmp_path / "broken.yml"
    rules.write_text('groups: [{name: g, rules: [{record: "rl:x", expr: "rl_a * ignoring (b) rl_a"}]}]')
    given = {'rl_a{b="1"}': "1x9", 'rl_a{b="2"}': "1x9"}
    test = promtool.of(given, [promtool.check("vector(1)", 0, {"{}": 1})])
    assert promtool.run("3", tmp_path, [test], rules) != ""


def test_the_matcher_of_what_is_not_finite() -> None:
    """It is short, and means the conditions of that family and no other."""
    found = {each.name for each in CONDITIONS if re.fullmatch(NONFINITE, each.name)}
    assert found == {each.name for each in CONDITIONS if each.family is FATAL}
