"""alerts/rlexporter.rules.yml: complete, well written, silent and firing when they should, on both generations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.generate import pack
from rlexporter.conditions.causes import INHIBITIONS, NONFINITE_CONDITIONS
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS
from tests.alerts import promtool, test_run_rules, test_storm_rules
from tests.alerts.expected import INFORMS, NUMBERS, PROMETHEUS_ALERTS, RAISED
from tests.alerts.lives import Event, Process, series
from tests.alerts.promtool import Case, alone, together
from tests.tools import BOTH_GENERATIONS, EACH_GENERATION, ROOT

GROUPS: list[dict[str, Any]] = yaml.safe_load(promtool.RULES.read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDING_RULES = {rule["record"] for rule in RULES if "record" in rule}
FOR_PEOPLE = {"rl:run_gpu_seconds", "rl:run_cause"}
"""What no rule reads: dashboards and people do."""


KEPT = {"run", "condition", "severity", "cluster", "instance"}
"""What texts may name that the alert itself has."""


def dropped(rule: dict[str, Any]) -> set[str]:
    """The labels of a rule's series that its alert has not."""
    return {name for name, value in rule["labels"].items() if not value}


def named(rule: dict[str, Any]) -> str:
    """The name of an alert, with the condition that a rule from outside says itself."""
    return "/".join(filter(None, (rule["alert"], rule["labels"].get("condition"))))


def _names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rl|rlexporter)_\w+\b", re.sub(r'"[^"]*"', "", expression)))


def test_every_limit_has_its_alert() -> None:
    """No limit of a condition without an alert, no alert that nobody expects."""
    by_condition = {
        (rule["alert"], condition)
        for rule in ALERTS
        for names in re.findall(r'^rl:alert\{condition=~?"([\w|]+)"\}$', rule["expr"])
        for condition in names.split("|")
        if named(rule) not in PROMETHEUS_ALERTS
    }
    assert by_condition == {(alert, each) for alert, each, _ in RAISED}
    outside = {named(rule): rule["labels"].get("severity", "") for rule in ALERTS if named(rule) in PROMETHEUS_ALERTS}
    assert outside == PROMETHEUS_ALERTS
    assert len({*map(named, ALERTS)}) == len(ALERTS), "no two rules of one name, but for other conditions"


def _wrong(rule: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an alert."""
    notes, expr = rule["annotations"], rule["expr"]
    of_run = rule["alert"] not in ("RLManyRunsSick", "RLExporterWatchdog", "RLTargetSilent")
    judged = expr.startswith("rl:alert{")
    more = {"cause", *(["action"] if named(rule) not in PROMETHEUS_ALERTS else [])} if judged else set()
    lost = {label for each in re.findall(r"(?:without|by) \(([^)]*)\)", expr) for label in each.split(", ")}
    runbook = ROOT / "alerts/runbooks" / notes["runbook_url"].rpartition("/")[2]
    right = {
        "name": re.fullmatch(r"RL[A-Z]\w+", rule["alert"]),
        "annotations": set(notes) == {"summary", "description", "runbook_url", *more},
        "query": not re.search(r"\bquery\b", " ".join(notes.values())),
        "summary": re.fullmatch(r".+\.({{ end }})?", notes["summary"]) and "query" not in notes["summary"],
        "end of the description": re.sub(r"({{ end }})+$", "", notes["description"]).endswith("."),
        "run in the description": "{{ $labels.run }}" in notes["description"] or not of_run,
        "label that changes": not any("$value" in label for label in rule["labels"].values()),
        "labels of its texts": {*re.findall(r"\$labels\.(\w+)", " ".join(notes.values()))} <= dropped(rule) | KEPT,
        "severity": rule["labels"].get("severity", "") == PROMETHEUS_ALERTS.get(named(rule), ""),
        "series": _names(expr) <= set(NAMED) and set(re.findall(r"rl:\w+", expr)) <= RECORDING_RULES,
        "rate": "rate(" not in expr,
        "lost label": not (of_run and {"run", "namespace", "cluster", "job"} & lost),
        "runbook": f"# {rule['alert']}\n" in runbook.read_text(),
    }
    return (name for name, holds in right.items() if not holds)


def test_alerts_are_well_written() -> None:
    """What a person needs who is woken by one; nothing that changes in a label."""
    offenders = [(rule["alert"], each) for rule in ALERTS for each in _wrong(rule)]
    assert offenders == []


def test_records_are_well_written() -> None:
    """Recording rules carry `rl:`, use what exists, and are used."""
    text, offenders = promtool.RULES.read_text(), []
    for rule in RULES:
        if "record" in rule:
            name, expr = rule["record"], rule["expr"]
            used = text.count(name) - text.count(f"record: {name}\n") - expr.count(name)
            known = _names(expr) <= set(NAMED) and set(re.findall(r"rl:\w+", expr)) <= RECORDING_RULES
            if not (name.startswith("rl:") and known and (used > 0 or name in FOR_PEOPLE)):
                offenders.append(name)
    assert offenders == []


def test_causes_come_before_symptoms() -> None:
    """In one group, so that both arrive together; the cause is evaluated first."""
    order = [each for rule in ALERTS for each in re.findall(r"(?:^|}})(\w+)", rule["labels"].get("family", ""))]
    assert len(GROUPS) == 1
    names = [condition.name for condition in CONDITIONS]
    assert sorted(NONFINITE_CONDITIONS, key=names.index) == [*NONFINITE_CONDITIONS]
    assert order.index("nonfinite") < order.index("grad_dead") < order.index("reward_drop")
    named = {each.label for causes, symptoms in INHIBITIONS for each in (*causes, *symptoms)}
    assert named <= set(order)
    assert "storm" in order
    assert "storm" not in named, "a storm is no cause, and no symptom"


def test_conditions_are_consistent() -> None:
    """Names are unique; a limit is milder first; what to look at exists; severities differ within a condition."""
    names = [condition.name for condition in CONDITIONS]
    assert len(names) == len(set(names))
    for condition in CONDITIONS:
        severities = [limit.severity.value for limit in condition.limits]
        assert severities == sorted(set(severities), key=["info", "warning", "critical"].index), condition.name
        assert set(condition.related) <= set(NAMED), condition.name
        assert all(limit.lasts.enough <= limit.lasts.of for limit in condition.limits)


Told = dict[str, Any]


def raised(told: Callable[[str, str, str], Told]) -> tuple[list[Process], dict[str, list[str]], dict[str, list[Told]]]:
    """A run for each condition and severity, with what fires of it and, by ``told``, what that says, by alert."""
    lives, fires, says = [], dict[str, list[str]](), dict[str, list[Told]]()
    for alert, condition, severity in RAISED:
        run = f"{condition}-{severity}"
        event = Event(condition, 300, severity=severity)
        lives.append(Process([("running", 1500)], run=run, instance=f"{run}:1", events=[event]))
        fires.setdefault(f"{alert}/{severity}", []).append(run)
        says.setdefault(alert, []).append(told(run, condition, severity))
    return lives, fires, says


@pytest.mark.parametrize("generation", BOTH_GENERATIONS)
def test_each_condition_is_silent_then_fires_then_ends(generation: str, tmp_path: Path) -> None:
    """One step is enough; a quarter of an hour later it is over; others stay silent. Each says what is the matter."""
    lives, fires, says = raised(_told)
    lives += [
        Process([("running", 1500)], run=name, instance=f"{name}:1", events=[Event(name, 300, severity="info")])
        for _, name, _ in INFORMS
    ]
    silent: dict[str, list[str]] = {alert: [] for alert in fires}
    silent |= {f"{alert}/info": [] for alert, _, _ in INFORMS}
    fires |= {f"{alert}/info": [] for alert, _, _ in INFORMS}
    case = Case(series(lives, 1400), {"4m30s": silent, "5m30s": fires, "14m": fires, "20m30s": silent})

    said = [{"alertname": alert, "eval_time": "5m30s", "exp_alerts": alerts} for alert, alerts in says.items()]

    assert promtool.run(generation, tmp_path, [alone(case) | {"alert_rule_test": said}], every="30s") == ""


def _told(run: str, condition: str, severity: str) -> dict[str, Any]:
    """The alert on a condition as Alertmanager gets it."""
    found = CONDITION_NAMED[condition]
    numbers = next((said for said, names in NUMBERS.items() if condition in names.split()), ": 7, limit 3")
    return {
        "exp_labels": {
            "run": run,
            "job": "rl",
            "namespace": "ml",
            "condition": condition,
            "severity": severity,
            "family": found.family.label,
        },
        "exp_annotations": {
            "summary": found.summary,
            "description": f"Run {run}, step 40{numbers}.",
            "action": "Stop the run if it still runs." if severity == "critical" else LOOK,
            "cause": "",
            "runbook_url": f"{RUNBOOKS}/{found.alert}.md",
        },
    }


LOOK = "Let the run go on, and look at it today."


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_an_alert_says_all_that_is_known(generation: str, tmp_path: Path) -> None:
    """What it is about, its unit, the last good checkpoint and the GPU hours since, of this alert and of no other."""
    incident = 'rl_incident{condition="kl_high",severity="critical",subject="tokens",cause="",unit="nats"}'
    known = {incident: 2.0, incident.replace("kl_high", "kl_negative"): 2.0, "rl_gpus": 8.0}
    events = [Event(name, 300, holds=10**6, step=step) for name, step in (("kl_high", 40), ("ratio_high", 41))]
    run = Process([("running", 2400)], events=events, more={**known, "rl_last_good_checkpoint_step": 30.0})
    told, other = _told("a", "kl_high", "critical"), _told("a", "ratio_high", "critical")
    more = " The last good checkpoint is that of step 30. 3.3 GPU hours were spent since it went wrong."
    stop = "Stop the run if it still runs, and resume from the checkpoint of step 30."
    told["exp_annotations"]["action"] = other["exp_annotations"]["action"] = stop
    told["exp_annotations"]["description"] = f"Run a, tokens, step 40: 7 nats, limit 3.{more}"
    other["exp_annotations"]["description"] = f"Run a, step 41: 7, limit 3.{more}"
    said = [
        {"alertname": name, "eval_time": "30m", "exp_alerts": [each]}
        for name, each in (("RLKL", told), ("RLRatio", other))
    ]
    case = Case(series([run], 2000), {"30m": {"RLKL": ["a"]}})
    assert promtool.run(generation, tmp_path, [alone(case) | {"alert_rule_test": said}]) == ""


def _lived(*events: Event, run: str = "a", instance: str = "h:1", born: int = 0, seconds: int = 600) -> Process:
    return Process([("running", seconds)], born, instance, run, events=events)


SYMPTOMS: dict[str, Case] = {
    "a symptom is silent, its cause is not": Case(
        series([_lived(Event("nonfinite_reward", 300), Event("nonfinite", 300, symptom=True))], 900),
        {
            "4m45s": {"RLRewardLost": [], "RLNotANumber": []},
            "5m15s": {"RLRewardLost": ["a"], "RLNotANumber": []},
            "9m": {"RLRewardLost": ["a"], "RLNotANumber": []},
        },
    ),
    "a symptom in a process that is gone, none in the next": Case(
        series(
            [
                _lived(Event("nonfinite", 100, symptom=True), seconds=150),
                _lived(Event("nonfinite", 300), instance="h:2", born=200),
            ],
            900,
        ),
        {"4m45s": {"RLNotANumber": []}, "5m15s": {"RLNotANumber": ["a"]}},
    ),
    "the failure of a run that died of NaN": Case(
        series(
            [Process([("running", 300), ("failed", 60)], events=[Event("nonfinite", 290)], died_of_nan=True)],
            900,
        ),
        {
            "5m30s": {"RLRunFailed/run_failed": [], "RLNotANumber": ["a"]},
            "12m": {"RLRunFailed/run_failed": [], "RLRunVanished/run_vanished": []},
        },
    ),
}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_symptoms_are_no_alerts(generation: str, tmp_path: Path) -> None:
    """One alert for one fault, in Prometheus too."""
    assert promtool.run(generation, tmp_path, [together(SYMPTOMS.values())]) == ""


RUN, STARTED = Process([("running", 2400)]), "rl_run_start_timestamp_seconds"
LIVE = series([RUN], 2400)


def worked(seconds: str, **labels: str) -> dict[str, str]:
    """The seconds that a rank has spent in generation, in the notation of promtool: every 15 s."""
    return {RUN.name("rl_phase_seconds_total", phase="generation", **labels): seconds}


def ranks(*others: Process) -> dict[str, str]:
    """A run of which rank 0 trains for two hours, and these ranks."""
    return series([Process([("running", 7200)]), *others], 7200)


def rank(number: int, *states: tuple[str, int], born: int = 0, at: str = "") -> Process:
    """Another rank, in these states for so many seconds each."""
    return Process(states, born, at or f"h:{number}", rank=number)


def missing(*minutes: int, at: Iterable[int] = (19, 24, 27, 40, 60, 110)) -> dict[str, dict[str, list[str]]]:
    """That a rank is missing is told in these minutes, and in no other of ``at``."""
    return {f"{each}m": {"RLRanks/rank_missing": ["a"] if each in minutes else []} for each in at}


TARGET = 'up{job="ml/rlexporter",instance="h:1"}'
OUTSIDE_CASES: dict[str, Case] = {
    "restarting: three starts within an hour": Case(
        {RUN.name(STARTED): "1x40 601x40 1201x80"},
        {"15m": {"RLRunRestarting/run_restarting": []}, "21m": {"RLRunRestarting/run_restarting": ["a"]}},
    ),
    "restarting: on other instances too": Case(
        {RUN.name(STARTED, instance=f"h:{i}"): f"_x{40 * i} {600 * i}x39 _x{200 - 40 * i}" for i in range(3)},
        {"15m": {"RLRunRestarting/run_restarting": []}, "21m": {"RLRunRestarting/run_restarting": ["a"]}},
    ),
    "errors of the exporter": Case(
        LIVE | {RUN.name("rlexporter_errors_total", where="tap"): "0x20 1x140"},
        {
            "5m": {"RLExporterErrors/exporter_errors": []},
            "6m": {"RLExporterErrors/exporter_errors": ["a"]},
            "38m": {"RLExporterErrors/exporter_errors": []},
        },
    ),
    "errors of the exporter, after twenty minutes without": Case(
        LIVE | {RUN.name("rlexporter_errors_total", where="tap"): "0x80 1x80"},
        {"22m": {"RLExporterErrors/exporter_errors": ["a"]}},
    ),
    "errors of the exporter before the first scrape": Case(
        LIVE | {RUN.name("rlexporter_errors_total", where="tap"): "1x80"},
        {"30s": {"RLExporterErrors/exporter_errors": ["a"]}},
    ),
    "one error more, after five in an attempt that is gone": Case(
        series([Process([("running", 3600)]), Process([("running", 3600)], 3660)], 7200)
        | {RUN.name("rlexporter_errors_total", where="tap"): "0x10 5x230 stale _x70 1x100"},
        {
            "50m": {"RLExporterErrors/exporter_errors": []},
            "70m": {"RLExporterErrors/exporter_errors": []},
            "79m": {"RLExporterErrors/exporter_errors": ["a"]},
        },
    ),
    "and at once, in its place": Case(
        series([Process([("running", 600)]), Process([("running", 3600)], 630)], 3000)
        | {RUN.name("rlexporter_errors_total", where="tap"): "0x10 5x29 stale 1x150"},
        {"12m": {"RLExporterErrors/exporter_errors": ["a"]}, "42m": {"RLExporterErrors/exporter_errors": []}},
    ),
    "rank 0 is not there": Case(
        series([Process([("running", 2400)], labels={"rank": "3"})], 2400),
        {
            "4m": {"RLRanks/rank_zero_missing": []},
            "6m": {"RLRanks/rank_zero_missing": ["a"]},
            "30m": {"RLRanks/rank_zero_missing": ["a"]},
        },
    ),
    "rank 0 is there, and then dead": Case(
        series([Process([("running", 600), ("failed", 30)])], 2400)
        | {RUN.name(STARTED, rank="3", instance="h:4"): "0x160"},
        {"6m": {"RLRanks/rank_zero_missing": []}, "30m": {"RLRanks/rank_zero_missing": []}},
    ),
    "a rank becomes slow": Case(
        worked("0+4.5x720") | worked("0+4.5x480 2160+12x240", rank="1"),
        {"119m": {"RLRanks/rank_straggles": []}, "160m": {"RLRanks/rank_straggles": ["a"]}},
    ),
    "a rank is slow by design": Case(
        worked("0+4.5x720") | worked("0+12x720", rank="1"),
        {"60m": {"RLRanks/rank_straggles": []}, "3h": {"RLRanks/rank_straggles": []}},
    ),
    "a rank becomes slow, and stays so": Case(
        worked("0+4.5x1200") | worked("0+4.5x480 2160+9.5x720", rank="1"),
        {
            "119m": {"RLRanks/rank_straggles": []},
            "165m": {"RLRanks/rank_straggles": ["a"]},
            "4h": {"RLRanks/rank_straggles": ["a"]},
            "5h": {"RLRanks/rank_straggles": ["a"]},
        },
    ),
    "a rank was slow, and is as fast as the others again": Case(
        worked("0+4.5x1200") | worked("0+4.5x480 2160+9.5x240 4444.5+4.5x480", rank="1"),
        {"170m": {"RLRanks/rank_straggles": ["a"]}, "4h": {"RLRanks/rank_straggles": []}},
    ),
    "a rank is slow from its first step": Case(
        worked("0+4.5x720") | worked("0+13.5x720", rank="1"),
        {
            "14m": {"RLRanks/rank_straggles": []},
            "40m": {"RLRanks/rank_straggles": ["a"]},
            "3h": {"RLRanks/rank_straggles": ["a"]},
        },
    ),
    "a rank is a little slow from its first step": Case(
        worked("0+4.5x720") | worked("0+9.5x720", rank="1"),
        {"40m": {"RLRanks/rank_straggles": []}, "3h": {"RLRanks/rank_straggles": []}},
    ),
    "a rank is gone": Case(ranks(rank(1, ("running", 7200)), rank(3, ("running", 1200))), missing(27, 40, 60, 110)),
    "two ranks are gone, one after the other": Case(
        ranks(rank(1, ("running", 1200)), rank(3, ("running", 2000))), missing(27, 40, 60, 110)
    ),
    "a rank is gone, and back elsewhere": Case(
        ranks(rank(1, ("running", 1200)), rank(1, ("running", 7200), born=2000, at="h:9")), missing(27)
    ),
    "a rank that ends by itself": Case(ranks(rank(1, ("running", 1200), ("finished", 60))), missing()),
    "a rank that fails is gone": Case(ranks(rank(1, ("running", 1200), ("failed", 60))), missing(27, 40, 60, 110)),
    "a rank moves": Case(ranks(rank(1, ("running", 1200)), rank(1, ("running", 7200), born=1290, at="h:9")), missing()),
    "ranks are restarted one after the other": Case(
        ranks(
            *(
                part
                for number in (1, 2, 3, 4)
                for part in (
                    rank(number, ("running", 1200 + 240 * number)),
                    rank(number, ("running", 7200), born=1440 + 240 * number, at=f"h:9{number}"),
                )
            )
        ),
        missing(at=range(19, 60, 2)),
    ),
    "all ranks end, and rank 0 last": Case(
        series(
            [
                Process([("running", 1200), ("finished", 600)]),
                *(rank(number, ("running", 1195), ("finished", 30)) for number in (1, 2)),
            ],
            7200,
        ),
        missing(),
    ),
    "another attempt has fewer ranks": Case(
        series(
            [
                Process([("running", 1200)]),
                *(rank(number, ("running", 1200)) for number in (1, 2, 3)),
                Process([("running", 6000)], born=1260, instance="h:5"),
                rank(1, ("running", 6000), born=1250, at="h:6"),
            ],
            7200,
        ),
        missing(),
    ),
    "the whole run is killed": Case(
        series([Process([("running", 1200)]), rank(1, ("running", 1100)), rank(2, ("running", 1200))], 7200), missing()
    ),
    "a rank is restarted elsewhere": Case(
        worked("0+9x720") | worked("0+9x480", rank="1") | worked("_x500 0+9x220", rank="1", instance="h:9"),
        {
            "121m": {"RLRanks/rank_straggles": []},
            "140m": {"RLRanks/rank_straggles": []},
            "3h": {"RLRanks/rank_straggles": []},
        },
    ),
    "the watchdog": Case({"up": "1x3"}, {"0s": {"RLExporterWatchdog": [""]}, "30m": {"RLExporterWatchdog": [""]}}),
}
TARGETS = {
    "a target that never answers": Case(
        {TARGET: "0x400"},
        {"9m": {"RLTargetSilent": []}, "11m": {"RLTargetSilent": [""]}, "90m": {"RLTargetSilent": [""]}},
    ),
    "one that is late": Case({TARGET: "0x20 1x80"}, {"9m": {"RLTargetSilent": []}, "15m": {"RLTargetSilent": []}}),
    "one whose run has ended": Case(
        {TARGET: "1x20 0x400"}, {f"{minutes}m": {"RLTargetSilent": []} for minutes in (10, 20, 60, 80, 100)}
    ),
    "one that is none of ours": Case({TARGET.replace("rlexporter", "node"): "0x100"}, {"20m": {"RLTargetSilent": []}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_alerts_from_outside(generation: str, tmp_path: Path) -> None:
    """Each at a time at which it must be silent, and at one at which it must fire."""
    tests = [together(OUTSIDE_CASES.values()), *map(alone, TARGETS.values())]
    assert promtool.run(generation, tmp_path, tests, every="30s") == ""


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_a_silent_target_in_a_job_of_any_name(generation: str, tmp_path: Path) -> None:
    """The name of the job is one of the settings of `rlexporter generate`; what it does not match is not ours."""
    file = tmp_path / "rules.yml"
    file.write_text(pack(jobs=r'training|a"b\d')["alerts/rlexporter.rules.yml"])
    for job, told in (("training", [""]), ('a\\"b1', [""]), ("ml/rlexporter", [])):
        case = Case({TARGET.replace("ml/rlexporter", job): "0x100"}, {"11m": {"RLTargetSilent": told}})
        assert promtool.run(generation, tmp_path, [alone(case)], file, every="30s") == ""


def test_every_alert_from_outside_has_a_case() -> None:
    """Here, among the runs, among the storms, or where Prometheus is away."""
    of_runs, of_storms = test_run_rules.CASES, test_storm_rules.STORMS
    cases = [case for each in (OUTSIDE_CASES, TARGETS, of_runs, of_storms) for case in each.values()]
    fired = {alert for case in cases for alerts in case.expect.values() for alert, runs in alerts.items() if runs}
    assert set(PROMETHEUS_ALERTS) - fired == {"RLRunVanished/run_end_unseen"}
