"""alerts/rlexporter.rules.yml: complete, well written, silent and firing when they should, on both generations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.catalog import CONDITIONS, INHIBITIONS, NAMED
from rlexporter.catalog.causes import NONFINITE_ALERTS
from tests.alerts import promtool
from tests.alerts.expected import PROMETHEUS_ALERTS, RAISED
from tests.alerts.promtool import Case, alone, together
from tests.tools import EACH_GENERATION, ROOT

GROUPS: list[dict[str, Any]] = yaml.safe_load(promtool.RULES.read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDING_RULES = {rule["record"] for rule in RULES if "record" in rule}

LABELS = 'run="a",rank="0",instance="h:1",job="rl",namespace="ml"'
RUNNING = f'rl_run_state{{state="running",{LABELS}}}'


def _series(name: str, **labels: str) -> str:
    return f"{name}{{{','.join([LABELS, *(f'{key}=' + json.dumps(value) for key, value in labels.items())])}}}"


def _names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rl|rlexporter)_\w+\b", re.sub(r'"[^"]*"', "", expression)))


def test_every_limit_has_its_alert() -> None:
    """No limit of a condition without an alert, no alert that nobody expects."""
    by_condition = {
        (rule["alert"], *re.findall(r'condition="(\w+)",severity="(\w+)"', rule["expr"])[0])
        for rule in ALERTS
        if rule["alert"] not in PROMETHEUS_ALERTS
    }
    assert by_condition == set(RAISED)
    outside = {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS if rule["alert"] in PROMETHEUS_ALERTS}
    assert outside == PROMETHEUS_ALERTS


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_is_well_written(rule: dict[str, Any]) -> None:
    """What a person needs who is woken by it; nothing that changes in a label."""
    notes = rule["annotations"]
    expr = rule["expr"]

    assert re.fullmatch(r"RL[A-Z]\w+", rule["alert"])
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["summary"].endswith(".")
    assert "{{" not in notes["summary"]
    assert notes["description"].endswith(".")
    assert not any("$value" in label for label in rule["labels"].values())
    assert rule["labels"]["severity"] in ("critical", "warning", "info", "none")
    assert _names(expr) <= set(NAMED), _names(expr) - set(NAMED)
    assert set(re.findall(r"rl:\w+", expr)) - RECORDING_RULES <= {"rl:"}
    assert re.search(r"==|>|<|vector", expr) or expr in RECORDING_RULES
    assert "rate(" not in expr
    runbook = ROOT / "alerts/runbooks" / notes["runbook_url"].rpartition("/")[2]
    assert runbook.read_text().count(f"# {rule['alert']}\n") >= 1
    if rule["alert"] not in ("RLManyRunsSick", "RLExporterWatchdog"):
        assert "{{ $labels.run }}" in notes["description"]
        for lost in re.findall(r"(?:without|by) \(([^)]*)\)", expr):
            assert not {"run", "namespace", "cluster", "job"} & set(lost.split(", "))


def test_every_record_is_well_written() -> None:
    """Recording rules carry `rl:`, use what exists, and are used."""
    text = promtool.RULES.read_text()
    for rule in RULES:
        if "record" in rule:
            assert rule["record"].startswith("rl:")
            assert _names(rule["expr"]) <= set(NAMED)
            assert text.count(rule["record"].removeprefix("rl:")) > 1


def test_causes_come_before_symptoms() -> None:
    """In one group, so that both arrive together; the cause is evaluated first; no cycle, or both would be hidden."""
    order = [rule["labels"].get("family") for rule in ALERTS]
    assert len(GROUPS) == 1
    names = [rule["alert"] for rule in ALERTS]
    assert sorted(NONFINITE_ALERTS, key=names.index) == [*NONFINITE_ALERTS]
    assert order.index("nonfinite") < order.index("grad_dead") < order.index("kl_high") < order.index("reward_drop")

    hidden = {cause.label: {each.label for each in symptoms} for causes, symptoms in INHIBITIONS for cause in causes}

    def reaches(start: str, goal: str, seen: frozenset[str] = frozenset()) -> bool:
        return any(
            each == goal or (each not in seen and reaches(each, goal, seen | {each})) for each in hidden.get(start, ())
        )

    assert not [cause for cause in hidden if reaches(cause, cause)]
    assert set(hidden) | set().union(*hidden.values()) <= set(order)


def test_conditions_are_consistent() -> None:
    """Names are unique; a limit is milder first; what to look at exists; severities differ within a condition."""
    names = [condition.name for condition in CONDITIONS]
    assert len(names) == len(set(names))
    for condition in CONDITIONS:
        severities = [limit.severity.value for limit in condition.limits]
        assert severities == sorted(set(severities), key=["info", "warning", "critical"].index), condition.name
        assert set(condition.related) <= set(NAMED), condition.name
        assert condition.causes, condition.name
        assert condition.remedies, condition.name
        assert condition.source, condition.name
        assert all(limit.k_of_n[0] <= limit.k_of_n[1] for limit in condition.limits)


def _one_step(run: str, condition: str, severity: str) -> dict[str, str]:
    """A condition that holds in one step, seen by one scrape at 5 minutes; the process is gone after 6."""
    labels = {"condition": condition, "severity": severity}
    series = {
        _series("rl_condition", **labels): "0x19 1 0x3 _x120",
        _series("rl_condition_last_event_timestamp_seconds", **labels): "_x20 295x3 _x120",
        _series("rl_condition_last_event_step", **labels): "_x20 40x3 _x120",
        _series("rl_condition_last_event_value", **labels): "_x20 7x3 _x120",
    }
    return {name.replace('run="a"', f'run="{run}"'): values for name, values in series.items()}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_each_condition_is_silent_then_fires_then_ends(generation: str, tmp_path: Path) -> None:
    """One step is enough, even if the process dies after it; ten minutes later it is over; others stay silent."""
    series: dict[str, str] = {}
    fires: dict[str, list[str]] = {}
    for alert, condition, severity in RAISED:
        run = f"{condition}-{severity}"
        series |= _one_step(run, condition, severity)
        fires.setdefault(f"{alert}/{severity}", []).append(run)
    silent: dict[str, list[str]] = {alert: [] for alert in fires}
    case = Case(series, {"4m45s": silent, "5m15s": fires, "9m": fires, "15m15s": silent})

    assert promtool.run(generation, tmp_path, [alone(case)]) == ""


def _symptom(condition: str, values: str, instance: str = "h:1") -> dict[str, str]:
    name = _series("rl_condition_symptom", condition=condition, severity="critical")
    return {name.replace("h:1", instance): values}


SYMPTOMS: dict[str, Case] = {
    "a symptom is silent, its cause is not": Case(
        {
            **_one_step("a", "nonfinite_weights", "critical"),
            **_one_step("a", "nonfinite_kl", "critical"),
            **_symptom("nonfinite_kl", "_x20 1x3 _x120"),
        },
        {
            "5m15s": {"RLWeightsNonFinite": ["a"], "RLKLNonFinite": []},
            "9m": {"RLWeightsNonFinite": ["a"], "RLKLNonFinite": []},
            "15m15s": {"RLWeightsNonFinite": [], "RLKLNonFinite": []},
        },
    ),
    "what was a symptom once, and is none any more": Case(
        {**_one_step("a", "nonfinite_kl", "critical"), **_symptom("nonfinite_kl", "1x19 0x4 _x120")},
        {"5m15s": {"RLKLNonFinite": ["a"]}, "9m": {"RLKLNonFinite": ["a"]}},
    ),
    "a symptom in a process that is gone, none in the next": Case(
        {**_one_step("a", "nonfinite_kl", "critical"), **_symptom("nonfinite_kl", "1x10 _x120", "h:2")},
        {"5m15s": {"RLKLNonFinite": ["a"]}},
    ),
    "the failure of a run that died of NaN": Case(
        {
            RUNNING: "1x20 0x4 _x100",
            _series("rl_run_state", state="failed"): "0x20 1x4 _x100",
            **_symptom("run_failed", "_x20 1x4 _x100"),
        },
        {"5m30s": {"RLRunFailed": []}, "12m": {"RLRunFailed": [], "RLRunVanished": []}},
    ),
}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_symptoms_are_no_alerts(generation: str, tmp_path: Path) -> None:
    """One alert for one fault, in Prometheus too."""
    assert promtool.run(generation, tmp_path, [together(SYMPTOMS.values())]) == ""


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_a_rule_that_never_fires_would_be_found(generation: str, tmp_path: Path) -> None:
    """The cases above can fail."""
    broken = tmp_path / "broken.yml"
    broken.write_text(promtool.RULES.read_text().replace('condition="kl_high"', 'condition="kl_hihg"'))
    case = Case(_one_step("a", "kl_high", "warning"), {"6m": {"RLKLHigh/warning": ["a"]}})

    assert promtool.run(generation, tmp_path, [alone(case)]) == ""
    assert "FAILED" in promtool.run(generation, tmp_path, [alone(case)], broken)


OUTSIDE_CASES: dict[str, Case] = {
    "vanished: killed; not at once, and not for ever": Case(
        {RUNNING: "1x20 _x200"},
        {
            "5m": {"RLRunVanished": []},
            "6m30s": {"RLRunVanished": []},
            "8m15s": {"RLRunVanished": ["a"]},
            "36m": {"RLRunVanished": []},
        },
    ),
    "vanished: not by a missed scrape": Case(
        {RUNNING: "1x20 stale _ _ 1x40"}, {f"{minute}m": {"RLRunVanished": []} for minute in range(4, 14)}
    ),
    "vanished: not by its normal end": Case(
        {RUNNING: "1x20 0x2 _x100"}, {f"{minute}m": {"RLRunVanished": []} for minute in range(4, 14)}
    ),
    "vanished: not when it goes on elsewhere under its name": Case(
        {RUNNING: "1x20 _x100", RUNNING.replace("h:1", "h:2"): "_x24 1x100"},
        {f"{minute}m": {"RLRunVanished": []} for minute in range(4, 14)},
    ),
    "vanished: one alert for 512 ranks": Case(
        {RUNNING.replace('rank="0"', f'rank="{rank}"'): "1x20 _x100" for rank in range(512)},
        {"8m15s": {"RLRunVanished": ["a"]}},
    ),
    "stalled: above its own limit, while it runs": Case(
        {
            RUNNING: "1x80",
            _series("rl_last_step_timestamp_seconds"): "0+15x10 150x70",
            _series("rl_stall_after_seconds"): "600x80",
        },
        {"12m": {"RLRunStalled": []}, "12m45s": {"RLRunStalled": ["a"]}, "19m": {"RLRunStalled": ["a"]}},
    ),
    "stalled: over when it goes on": Case(
        {
            RUNNING: "1x80",
            _series("rl_last_step_timestamp_seconds"): "0x50 750+15x30",
            _series("rl_stall_after_seconds"): "600x80",
        },
        {"11m": {"RLRunStalled": ["a"]}, "13m": {"RLRunStalled": []}},
    ),
    "stalled: not by a slow run, nor after its end": Case(
        {
            RUNNING: "1x60 0x60",
            _series("rl_last_step_timestamp_seconds"): "0x120",
            _series("rl_stall_after_seconds"): "1200x120",
        },
        {"14m": {"RLRunStalled": []}, "25m": {"RLRunStalled": []}},
    ),
    "failed": Case(
        {RUNNING: "1x20 0x4 _x100", _series("rl_run_state", state="failed"): "0x20 1x4 _x100"},
        {
            "5m": {"RLRunFailed": []},
            "5m30s": {"RLRunFailed": ["a"]},
            "12m": {"RLRunFailed": ["a"], "RLRunVanished": []},
            "22m": {"RLRunFailed": []},
        },
    ),
    "failed: no alert once it runs again": Case(
        {
            RUNNING: "1x20 0x4 _x100",
            _series("rl_run_state", state="failed"): "0x20 1x4 _x100",
            RUNNING.replace("h:1", "h:2"): "_x30 1x70",
        },
        {"6m": {"RLRunFailed": ["a"]}, "9m": {"RLRunFailed": []}},
    ),
    "restarting: three starts within an hour": Case(
        {_series("rl_run_start_timestamp_seconds"): "1x40 601x40 1201x80"},
        {"15m": {"RLRunRestarting": []}, "21m": {"RLRunRestarting": ["a"]}},
    ),
    "restarting: on other instances too": Case(
        {
            _series("rl_run_start_timestamp_seconds").replace(
                "h:1", f"h:{i}"
            ): f"_x{40 * i} {600 * i}x39 _x{200 - 40 * i}"
            for i in range(3)
        },
        {"15m": {"RLRunRestarting": []}, "21m": {"RLRunRestarting": ["a"]}},
    ),
    "lost progress": Case(
        {_series("rl_step"): "0+1x40 20+1x60"},
        {"9m": {"RLRunLostProgress": []}, "12m": {"RLRunLostProgress": ["a"]}, "17m": {"RLRunLostProgress": []}},
    ),
    "preempted: told, never paged": Case(
        {RUNNING: "1x20 0x4 _x100", _series("rl_run_state", state="preempted"): "0x20 1x4 _x100"},
        {
            "5m": {"RLRunPreempted": []},
            "6m": {"RLRunPreempted": ["a"], "RLRunFailed": []},
            **{f"{minute}m": {"RLRunVanished": [], "RLRunFailed": []} for minute in range(7, 14)},
        },
    ),
    "errors of the exporter": Case(
        {_series("rlexporter_errors_total", where="tap"): "0x20 1x80"},
        {"5m": {"RLExporterErrors": []}, "6m": {"RLExporterErrors": ["a"]}, "24m": {"RLExporterErrors": []}},
    ),
    "errors of the exporter before the first scrape": Case(
        {_series("rlexporter_errors_total", where="tap"): "1x80"}, {"30s": {"RLExporterErrors": ["a"]}}
    ),
    "a signal that an error took, not one that the configuration leaves out": Case(
        {
            _series("rl_signal_unavailable_info", signal="ratio", cause="error", reason="x"): "_x10 1x30",
            _series("rl_signal_unavailable_info", signal="kl", cause="configuration", reason="y").replace(
                'run="a"', 'run="b"'
            ): "1x40",
        },
        {"2m": {"RLSignalUnavailable": []}, "3m": {"RLSignalUnavailable": ["a"]}},
    ),
    "the watchdog": Case({RUNNING: "1x3"}, {"0s": {"RLExporterWatchdog": [""]}, "30m": {"RLExporterWatchdog": [""]}}),
}
STORMS: dict[str, Case] = {
    "many runs": Case(
        {RUNNING.replace('run="a"', f'run="r{i}"'): "1x20 _x100" for i in range(5)},
        {"6m45s": {"RLManyRunsSick": []}, "7m30s": {"RLManyRunsSick": [""]}},
    ),
    "four are not many": Case(
        {RUNNING.replace('run="a"', f'run="r{i}"'): "1x20 _x100" for i in range(4)},
        {"7m30s": {"RLManyRunsSick": []}, "9m": {"RLManyRunsSick": [], "RLRunVanished": ["r0", "r1", "r2", "r3"]}},
    ),
}


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_alerts_from_outside(generation: str, tmp_path: Path) -> None:
    """Each at a time at which it must be silent, and at one at which it must fire."""
    tests = [together(OUTSIDE_CASES.values()), *map(alone, STORMS.values())]
    assert promtool.run(generation, tmp_path, tests) == ""
    cases = (*OUTSIDE_CASES.values(), *STORMS.values())
    named = {alert for case in cases for alerts in case.expect.values() for alert in alerts}
    assert set(PROMETHEUS_ALERTS) <= named
