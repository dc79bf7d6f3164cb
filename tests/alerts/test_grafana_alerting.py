"""grafana/alerting: Grafana's own models know all of it, and its rules fire where those of Prometheus do.

No Grafana is at hand. A rule of Grafana is played as the rule of Prometheus that fires when Grafana's would.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.commands.generate import pack
from rlexporter.conditions.table import CONDITION_NAMED
from scripts.pack import first_steps
from tests.alerts import promtool
from tests.alerts.expected import NUMBERS, RAISED
from tests.alerts.lives import Event, Process, series
from tests.alerts.promtool import Case, alone, together
from tests.alerts.test_rules import ALERTS, OUTSIDE_CASES, RULES, TARGETS, named, raised
from tests.alerts.test_storm_rules import STORMS
from tests.dashboards.test_models import lost
from tests.programs import printed
from tests.tools import EACH_GENERATION, ROOT, answering, eventually, prometheus

FOLDER = ROOT / "grafana/alerting"
GROUPS = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
GRAFANA = {rule["title"].replace(": ", "/"): rule for group in GROUPS for rule in group["rules"]}
"""By the name, and by the condition where several rules of Prometheus have that name."""
POINTS = yaml.safe_load((FOLDER / "contact-points.yml").read_text())["contactPoints"]
(POLICY,) = yaml.safe_load((FOLDER / "policies.yml").read_text())["policies"]
FLEET = "https://grafana.example.org/d/rlexporter-fleet"
IN_A_FILE = {"keepFiringFor": "keep_firing_for", "missing_series_evals_to_resolve": "missingSeriesEvalsToResolve"}
"""What a file calls otherwise than the API, whose models are published: both are tags in rules_types.go of Grafana."""


def _expression(rule: dict[str, Any]) -> str:
    """PromQL that answers where Grafana fires: where its condition is not 0 (a NaN is not), or is one of any row."""
    stages = {each["refId"]: each["model"] for each in rule["data"]}
    asked: str = stages["A"]["expr"]
    told = stages[rule["condition"]].get("expression")
    assert told in (None, "is_null($A) == 0"), "what else is a row?"
    return asked if told else f"({asked}) != 0"


def _in_prometheus(text: str) -> str:
    """A text with the value where Prometheus has it, and with the address of Grafana: promtool knows none."""
    return text.replace(".Values.A.Value", ".Value").replace("externalURL", '"https://grafana.example.org/"')


def _played(folder: Path) -> Path:
    """The recording rules, and Grafana's as alerts of Prometheus, with texts for Prometheus."""
    rules = [rule for rule in RULES if "record" in rule]
    for name, rule in GRAFANA.items():
        said = {
            each: {key: _in_prometheus(text) for key, text in rule[each].items()} for each in ("labels", "annotations")
        }
        keep = {"keep_firing_for": rule["keepFiringFor"]} if "keepFiringFor" in rule else {}
        rules.append({"alert": name.partition("/")[0], "expr": _expression(rule), "for": rule["for"], **keep, **said})
    file = folder / "grafana.rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "rlexporter", "interval": "15s", "rules": rules}]}))
    return file


def test_each_alert_is_one_rule() -> None:
    """It asks the same for as long, and has the same labels; none is missing, and there is no other."""
    shared = [rule["alert"] for rule in ALERTS]
    names = [named(rule) if shared.count(rule["alert"]) > 1 else rule["alert"] for rule in ALERTS]
    assert [*GRAFANA] == names
    assert sum(len(group["rules"]) for group in GROUPS) == len(GRAFANA)
    for name, alert in zip(names, ALERTS, strict=True):
        rule = GRAFANA[name]
        labels = {key: value.replace("$labels", ".Labels") for key, value in alert["labels"].items() if value}
        drops = ", ".join(key for key, value in alert["labels"].items() if not value)
        expr = f"max without ({drops}) ({alert['expr']})" if drops else alert["expr"]
        assert rule["data"][0]["model"]["expr"] == expr
        assert (rule["for"], rule.get("keepFiringFor")) == (alert.get("for", "0s"), alert.get("keep_firing_for"))
        assert rule["labels"] == labels
        assert rule["annotations"]["runbook_url"] == alert["annotations"]["runbook_url"]


def test_grafana_takes_the_rules() -> None:
    """What its provisioning refuses, or would read as something else."""
    uids = [rule["uid"] for rule in GRAFANA.values()]
    assert len({*uids}) == len(uids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", uid) for uid in uids)
    assert [re.fullmatch("([0-9]+)0s", group["interval"]) is not None for group in GROUPS] == [True]
    for rule in GRAFANA.values():
        assert (rule["noDataState"], rule["isPaused"]) == ("OK", False)
        assert rule["execErrState"] == ("Error" if rule["title"] == "RLExporterWatchdog" else "KeepLast")
        query, row = rule["data"]
        assert (query["model"]["instant"], query["model"]["range"]) == (True, False)
        assert [each["model"]["datasource"]["uid"] for each in (query, row)] == ["prometheus", "__expr__"]
        assert all(each["datasourceUid"] == each["model"]["datasource"]["uid"] for each in (query, row))
        texts = " ".join([*rule["annotations"].values(), *rule["labels"].values()])
        assert "$" not in " ".join(rule["labels"].values()), "a variable of the environment"
        assert {*re.findall(r"\$\w+", texts)} <= {"$of", "$noun", "$1"}, "what Grafana has under another name"
        functions = r"(?<!url)\bquery\b|\bfirst\b|\bsortByLabel\b|\bstrvalue\b|\bsafeHtml\b|\btableLink\b|\bgraphLink\b"
        assert not re.search(functions, " ".join(re.findall(r"\{\{.*?\}\}", texts)))


def _encoded(model: Any, ours: dict[str, Any]) -> Any:
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        plugins.register_default_plugins()
    return json.loads(JSONEncoder().encode(model.from_json(ours)))


def _in_the_api(rule: dict[str, Any]) -> dict[str, Any]:
    there = {"folderUID": "f", "ruleGroup": "rlexporter", "orgID": 1}
    return {IN_A_FILE.get(key, key): value for key, value in rule.items()} | there


def test_nothing_is_lost_in_the_models_of_grafana() -> None:
    """Rules with their queries, contact points and policies, read and written by the foundation SDK."""
    pytest.importorskip("grafana_foundation_sdk", reason="it needs Python 3.11")
    from grafana_foundation_sdk.models import alerting

    for rule in map(_in_the_api, GRAFANA.values()):
        assert [*lost(rule, _encoded(alerting.Rule, rule))] == []
    for point in POINTS:
        for receiver in point["receivers"]:
            ours = {**receiver, "name": point["name"]}
            assert [*lost(ours, _encoded(alerting.ContactPoint, ours))] == []
    policy = {key: value for key, value in POLICY.items() if key != "orgId"}
    assert [*lost(policy, _encoded(alerting.NotificationPolicy, policy))] == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    """In a rule, in its query, in its expression, in a route."""
    pytest.importorskip("grafana_foundation_sdk", reason="it needs Python 3.11")
    from grafana_foundation_sdk.models import alerting

    rule = json.loads(json.dumps(_in_the_api(GRAFANA["RLKL"])))
    rule["state"] = ""
    rule["data"][0]["model"]["instantaneous"] = True
    rule["data"][1]["model"]["math"] = "1"
    assert len([*lost(rule, _encoded(alerting.Rule, rule))]) == 3
    policy = {"receiver": "a", "routes": [{"receiver": "b", "group_internval": "5m"}]}
    assert len([*lost(policy, _encoded(alerting.NotificationPolicy, policy))]) == 1


def _route(labels: dict[str, str], route: dict[str, Any] = POLICY) -> str:
    """The contact point of an alert, by the first route that matches, as Alertmanager and Grafana do."""
    for child in route.get("routes", []):
        if all(_matches(labels.get(name, ""), kind, value) for name, kind, value in child["object_matchers"]):
            return _route(labels, child)
    return str(route["receiver"])


def _matches(label: str, kind: str, value: str) -> bool:
    assert kind in ("=", "=~")
    return label == value if kind == "=" else re.fullmatch(value, label) is not None


@pytest.mark.parametrize(
    ("name", "severity", "point"),
    [
        ("RLKL", "critical", "page"),
        ("RLKL", "warning", "chat"),
        ("RLRunFailed: run_failed", "critical", "page"),
        ("RLNotANumber", "critical", "page"),
        ("RLManyRunsSick", "critical", "page"),
        ("RLManyRunsSick", "warning", "chat"),
        ("RLExporterWatchdog", "none", "heartbeat"),
        ("DatasourceError", "none", "chat"),
    ],
)
def test_who_is_told(name: str, severity: str, point: str) -> None:
    """A person at once, or a channel; and what is named is a contact point of ours."""
    found = _route({"alertname": name, "severity": severity})
    assert found == f"rlexporter {point}"
    assert found in [each["name"] for each in POINTS]


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_each_condition_fires_and_says_so(generation: str, tmp_path: Path) -> None:
    """Before, during and after, with the labels of Prometheus' alert and a text that is whole."""
    lives, fires, says = raised(_told)
    silent: dict[str, list[str]] = {alert: [] for alert in fires}
    case = Case(series(lives, 1400), {"4m30s": silent, "5m30s": fires, "14m": fires, "20m30s": silent})
    said = [{"alertname": alert, "eval_time": "5m30s", "exp_alerts": alerts} for alert, alerts in says.items()]

    test = alone(case) | {"alert_rule_test": said}
    assert promtool.run(generation, tmp_path, [test], _played(tmp_path), every="30s") == ""


def _told(run: str, condition: str, severity: str) -> dict[str, Any]:
    found = CONDITION_NAMED[condition]
    numbers = next((said for said, names in NUMBERS.items() if condition in names.split()), ": 7")
    of_run = {"run": run, "job": "rl", "namespace": "ml"}
    family = found.family.label
    go_on = "Let the run go on, and look at it today."
    first = "Stop the run if it still runs." if severity == "critical" else go_on
    step = first_steps.of_conditions()[condition]
    return {
        "exp_labels": {**of_run, "condition": condition, "severity": severity, "family": family},
        "exp_annotations": {
            "summary": found.summary,
            "description": f"Run {run}{numbers.partition(', limit')[0]}.",
            "action": f"{first} {step}",
            "runbook_url": f"{RUNBOOKS}/{found.alert}.md",
            "dashboard": f"{FLEET}?var-run={run}&var-namespace=ml&var-job=rl",
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_others_fire(generation: str, tmp_path: Path) -> None:
    """What only Prometheus sees, and storms."""
    tests = [together(OUTSIDE_CASES.values()), *map(alone, (*TARGETS.values(), next(iter(STORMS.values()))))]
    assert promtool.run(generation, tmp_path, tests, _played(tmp_path), every="30s") == ""


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -1.0])
def test_any_value_fires(value: float, tmp_path: Path) -> None:
    """A row is an alert: 0 is the entropy of a policy that is dead. A healthy run has no row."""
    sick = Process([("running", 900)], events=[Event("entropy_low", 300, value=value)])
    well = Process([("running", 900)], run="b", instance="b:1")
    lives = {name: _each(values) for name, values in series([sick, well], 900).items()}
    case = Case(lives, {"4m45s": {"RLEntropy": []}, "6m": {"RLEntropy": ["a"]}})
    assert promtool.run("3", tmp_path, [alone(case)], _played(tmp_path)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_queries_answer_as_alerts_fire(value: float, tmp_path: Path) -> None:
    """Each query at a real server, with a run in which everything is wrong, and with one in which nothing is."""
    now = int(time.time())
    events = [Event(condition, now, 10**6, severity, value) for _, condition, severity in RAISED]
    more = {'rlexporter_errors_total{where="tap"}': 1.0}
    sick = Process([("running", 10**6)], now - 900, events=events, more=more, clock=300)
    well = Process([("running", 10**6)], now - 900, "h:2", "well")

    def serve(asked: BaseHTTPRequestHandler) -> None:
        told = [each.at(int(time.time())) for each in (sick, well)]
        asked.send_response(200)
        asked.send_header("Content-Type", "text/plain; version=0.0.4")
        asked.end_headers()
        asked.wfile.write("".join(f"{name} {each}\n" for one in told for name, each in one.items()).encode())

    def runs(query: str) -> set[str | None]:
        return {row["metric"].get("run") for row in server.query(query)}

    def differ() -> list[str]:
        return [name for name in told if runs(_expression(GRAFANA[name])) != runs(alerts(name))]

    def alerts(name: str) -> str:
        alert, _, condition = name.partition("/")
        return f'ALERTS{{alertname="{alert}",condition=~"{condition or ".*"}"}}'

    errors = {"RLExporterErrors/exporter_errors", "RLExporterErrors/clock_off"}
    told = {alert for alert, _, _ in RAISED} | errors | {"RLManyRunsSick", "RLRunFailed/run_failed"}
    honest = {"honor_labels": True}
    with (
        answering(serve) as port,
        prometheus("3", tmp_path, [f"127.0.0.1:{port}"], rules=promtool.RULES, scrape=honest) as server,
    ):
        eventually(lambda: runs('ALERTS{alertname="RLKL"}') == {"a"} and not differ(), 60.0)
        silent = {name for name in told if not runs(_expression(GRAFANA[name]))}
    assert silent == {"RLManyRunsSick", "RLRunFailed/run_failed"}


def _each(values: str) -> str:
    """The values of a series, where promtool would read `nanx9` as a word."""
    return re.sub(r"\b(nan|inf)x(\d+)", lambda found: " ".join([found[1]] * (int(found[2]) + 1)), values)


def test_texts_of_what_only_prometheus_sees(tmp_path: Path) -> None:
    """They are whole sentences without what Prometheus would be asked for."""
    failed = Process([("running", 300), ("failed", 600)], more={"rl_last_good_checkpoint_step": 30.0})
    stalled = Process([("running", 1500)], run="s", instance="s:1", hangs=100)
    expected = {
        "RLRunFailed": (
            "a",
            "it has ended with an exception.",
            "Read the exception at the end of the log, and look for an alert on NaN before it.",
        ),
        "RLRunStalled": (
            "s",
            "no step has ended for 13m 20s.",
            first_steps.of_others()["run_stalled"],
        ),
    }
    said = [_said(name, *told) for name, told in expected.items()]
    test = promtool.of(series([failed, stalled], 900), [promtool.check("vector(1)", 0, {"{}": 1})])
    assert promtool.run("3", tmp_path, [test | {"alert_rule_test": said}], _played(tmp_path)) == ""


def _said(name: str, run: str, description: str, action: str) -> dict[str, Any]:
    alert = next(rule for rule in ALERTS if rule["alert"] == name)
    condition = re.findall(r'condition="(\w+)"', alert["expr"])[0]
    notes = {
        "summary": alert["annotations"]["summary"],
        "description": f"Run {run}: {description}",
        "action": action,
        "runbook_url": f"{RUNBOOKS}/{name}.md",
        "dashboard": f"{FLEET}?var-run={run}&var-namespace=ml&var-job=rl",
    }
    own = {key: value for key, value in alert["labels"].items() if value}
    labels = {"run": run, "job": "rl", "namespace": "ml", "condition": condition, **own}
    return {
        "alertname": name,
        "eval_time": "15m",
        "exp_alerts": [{"exp_labels": labels, "exp_annotations": notes}],
    }


def test_another_data_source(tmp_path: Path) -> None:
    """The command of the page changes it in each query, and nothing else."""
    page = (ROOT / "docs/howto/grafana-alerting.md").read_text()
    (command,) = re.findall(r"^ *(sed .*)$", page, re.MULTILINE)
    file = tmp_path / "rules.yml"
    file.write_text((FOLDER / "rules.yml").read_text())
    printed("/bin/sh", "-c", command.replace("/etc/grafana/provisioning/alerting/rules.yml", str(file)))
    changed = [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
    for before, after in zip(GRAFANA.values(), changed, strict=True):
        before = json.loads(json.dumps(before))
        before["data"][0]["datasourceUid"] = before["data"][0]["model"]["datasource"]["uid"] = "UID"
        assert after == before


def test_the_settings_of_a_site() -> None:
    """The jobs and the runbooks are filled in, as in the rules of Prometheus; links lead to Grafana itself."""
    files = pack("https://wiki.example.org/rl", "https://grafana.example.org", "training|it's")
    text = files["grafana/alerting/rules.yml"]
    silent = next(rule for rule in yaml.safe_load(text)["groups"][0]["rules"] if rule["title"] == "RLTargetSilent")
    assert """up{job=~"training|it's"} == 0""" in silent["data"][0]["model"]["expr"]
    assert silent["annotations"]["runbook_url"] == "https://wiki.example.org/rl/RLTargetSilent.md"
    assert "grafana.example.org" not in text
    assert {"grafana/alerting/contact-points.yml", "grafana/alerting/policies.yml"} <= {*files}
