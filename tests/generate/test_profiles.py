"""`rlexporter generate --profile minimal`: few alerts, whole by themselves, and none that waits for one left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.commands import main
from rlexporter.commands.profiles import MINIMAL
from scripts.pack.outside import WATCHDOG
from tests.alerts import promtool
from tests.alerts.lives import Event, Process, series
from tests.alerts.promtool import Case, alone
from tests.programs import printed
from tests.tools import require_tools


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of the profile."""
    out = tmp_path_factory.mktemp("minimal")
    assert main.main(["generate", "--out", str(out), "--profile", "minimal", "--grafana-url", "http://g"]) == 0
    return out


def _rules(text: str) -> list[dict[str, Any]]:
    found = yaml.safe_load(text)
    return [rule for group in found.get("spec", found)["groups"] for rule in group["rules"]]


def test_it_is_whole(pack: Path) -> None:
    """promtool takes it; each record that is left is read; Kubernetes and Grafana have the same alerts."""
    file = pack / "alerts/rlexporter.rules.yml"
    assert "SUCCESS" in printed(require_tools("3") / "promtool", "check", "rules", file)
    rules = _rules(file.read_text())
    alerts = [rule["alert"] for rule in rules if "alert" in rule]
    assert {*alerts} == {*MINIMAL}
    assert WATCHDOG in alerts
    read = " ".join(rule["expr"] for rule in rules)
    assert [rule["record"] for rule in rules if "record" in rule and read.count(rule["record"]) < 1] == []
    assert "rl:storm" not in read
    assert all("dashboard_url" in rule["annotations"] for rule in rules if rule.get("alert", WATCHDOG) != WATCHDOG)
    (operator,) = (pack / "deploy/kubernetes").glob("prometheusrule.yaml")
    assert [rule.get("alert") for rule in _rules(operator.read_text())] == [rule.get("alert") for rule in rules]
    grafana = _rules((pack / "grafana/alerting/rules.yml").read_text())
    assert [rule["title"].partition(":")[0] for rule in grafana] == alerts


def test_one_nan_pages(pack: Path, tmp_path: Path) -> None:
    """In the next evaluation, with its text; and so does what follows from something that the profile leaves out."""
    nan = Process([("running", 900)], events=[Event("nonfinite", 300)])
    follows = Process([("running", 900)], run="b", instance="b:1", events=[Event("kl_high", 300, symptom=True)])
    case = Case(
        series([nan, follows], 900),
        {"4m45s": {"RLNotANumber": [], "RLKL": []}, "5m15s": {"RLNotANumber/critical": ["a"], "RLKL/critical": ["b"]}},
    )
    site = tmp_path / "site"
    assert main.main(["generate", "--out", str(site), "--profile", "minimal"]) == 0
    rules = site / "alerts/rlexporter.rules.yml"
    found = next(rule["annotations"] for rule in _rules(rules.read_text()) if rule.get("alert") == "RLNotANumber")
    of_run = {"run": "a", "job": "rl", "namespace": "ml"}
    told = {
        "exp_labels": {**of_run, "condition": "nonfinite", "severity": "critical", "family": "nonfinite"},
        "exp_annotations": {
            "summary": found["summary"],
            "description": "Run a, step 40: 7 NaN or infinite values.",
            "action": "Stop the run if it still runs.",
            "cause": "",
            "runbook_url": found["runbook_url"],
        },
    }
    said = {"alertname": "RLNotANumber", "eval_time": "5m30s", "exp_alerts": [told]}
    assert promtool.run("3", tmp_path, [alone(case) | {"alert_rule_test": [said]}], rules) == ""
