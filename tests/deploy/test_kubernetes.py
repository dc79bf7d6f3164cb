"""deploy/kubernetes: that it can be built, says what the other files say, and fits the objects of the operator."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.catalog.metrics import CATALOG
from rlexporter.config.settings import Settings
from scripts.pack.outside import LOST_WITHOUT
from tests.programs import evaluated, printed
from tests.tools import ALERTMANAGERS, ROOT, require_alertmanager, require_tool

FOLDER = ROOT / "deploy/kubernetes"
JOBS = (FOLDER / "example-job.yaml", ROOT / "examples/kubernetes/grpo.yaml")
OF_TARGETS = {"namespace", "job", "pod", "container", "endpoint", "instance", "node"}
"""The labels that a PodMonitor gives to what it scrapes."""
VALIDATE = """\
import {PodMonitor, PrometheusRule} from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
import {AlertmanagerConfig} from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1alpha1";
import {Job} from "kubernetes-models/batch/v1";
import {NetworkPolicy} from "kubernetes-models/networking.k8s.io/v1";
import {ConfigMap, PodTemplate} from "kubernetes-models/v1";
import {readFileSync} from "node:fs";
const kinds = {PodMonitor, PrometheusRule, AlertmanagerConfig, Job, ConfigMap, NetworkPolicy, PodTemplate};
for (const each of JSON.parse(readFileSync(0))) {
  try { new kinds[each.kind](each).validate(); } catch (error) { console.log(`${each.kind}: ${error.message}`); }
}
"""


pytestmark = pytest.mark.slow


class Strict(yaml.SafeLoader):
    """Refuses a key that comes twice, of which the plain loader silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As the plain one does it."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if len(keys) != len(set(keys)):
            raise yaml.YAMLError(f"a key comes twice in {keys}{node.start_mark}")
        return super().construct_mapping(node, deep)


# Kustomize writes `matchType: =`, which is a word of its own in YAML 1.1 only.
Strict.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def load(path: Path) -> Any:
    """The one document of a file."""
    return yaml.load(path.read_text(), Strict)


@pytest.fixture(scope="module")
def built() -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send, without any flag of kustomize."""
    command = [str(require_tool("kustomize")), "build", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(yaml.load_all(done.stdout, Strict))


def test_no_key_comes_twice() -> None:
    """Every file is one document of YAML that all parsers read alike."""
    files = [path for top in ("deploy", "grafana") for path in (ROOT / top).rglob("*.y*ml")]
    assert len(files) > 10
    assert [path for path in (*files, ROOT / "docker-compose.yml") if not isinstance(load(path), (dict, list))] == []
    with pytest.raises(yaml.YAMLError, match="twice"):
        yaml.load("a: {b: 1, c: 2, b: 3}", Strict)


def test_it_can_be_built(built: list[dict[str, Any]]) -> None:
    """All objects are there, labelled, in no namespace of ours; the example is not, and each dashboard is as it is."""
    assert sorted(each["kind"] for each in built if each["kind"] != "ConfigMap") == [
        "AlertmanagerConfig",
        "PodMonitor",
        "PrometheusRule",
    ]
    assert {each["metadata"]["labels"]["app.kubernetes.io/part-of"] for each in built} == {"rlexporter"}
    assert not any("namespace" in each["metadata"] for each in built)
    maps = [each for each in built if each["kind"] == "ConfigMap"]
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in maps} == {"1"}
    dashboards = {path.name: path.read_text() for path in (ROOT / "grafana/dashboards").glob("*.json")}
    assert len(dashboards) >= 4
    assert {name: text for each in maps for name, text in each["data"].items()} == dashboards
    assert all(len(text) < 1 << 20 for text in dashboards.values()), "too large for a ConfigMap"


def test_the_rules_are_the_same(built: list[dict[str, Any]]) -> None:
    """The groups of the PrometheusRule are those of the rules file, but for how often they are evaluated."""
    (rule,) = (each for each in built if each["kind"] == "PrometheusRule")
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    ours = load(ROOT / "alerts/rlexporter.rules.yml")
    assert (rule["spec"]["groups"][0].pop("interval"), ours["groups"][0].pop("interval")) == ("30s", "15s")
    assert rule["spec"] == ours
    assert len(rule["spec"]["groups"][0]["rules"]) > 50


def native(route: dict[str, Any]) -> dict[str, Any]:
    """A route of an AlertmanagerConfig in the words of Alertmanager."""
    words = {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): value for key, value in route.items()}
    words["matchers"] = matchers(words["matchers"])
    return words | ({"routes": [native(each) for each in words["routes"]]} if "routes" in words else {})


def matchers(found: list[dict[str, str]]) -> list[str]:
    return [f'{each["name"]}{each["matchType"]}"{each["value"]}"' for each in found]


def test_alerts_go_the_same_way() -> None:
    """Routes and inhibit rules of the AlertmanagerConfig are those of alertmanager.yml; so are its receivers."""
    config, plain = load(FOLDER / "alertmanagerconfig.yaml"), load(ROOT / "alerts/alertmanager.yml")
    assert (config["apiVersion"], config["kind"]) == ("monitoring.coreos.com/v1alpha1", "AlertmanagerConfig")
    spec = config["spec"]
    assert set(spec) == {"route", "receivers", "inhibitRules"}
    assert native(spec["route"]) == plain["route"]["routes"][0]
    assert [
        {"source_matchers": matchers(each["sourceMatch"]), "target_matchers": matchers(each["targetMatch"])}
        | {"equal": each["equal"]}
        for each in spec["inhibitRules"]
    ] == plain["inhibit_rules"]
    assert [each["name"] for each in spec["receivers"]] == [each["name"] for each in plain["receivers"]]


@pytest.mark.parametrize("generation", ALERTMANAGERS)
def test_messages(generation: str, tmp_path: Path) -> None:
    """Texts need no template but themselves, and say what is the matter, where, and what to read."""
    (page,) = (each for each in load(FOLDER / "alertmanagerconfig.yaml")["spec"]["receivers"] if each["name"] == "page")
    (pagerduty,) = page["pagerdutyConfigs"]
    notes = {"summary": "KL is high.", "description": "kl is 7.", "runbook_url": "http://docs/a.md"}
    notes["panel_url"] = "http://grafana/d/a?b&viewPanel=7"
    notes["dashboard_url"], began = "http://grafana/d/a?b", "1970-01-01T03:00:01Z"
    labels = {"alertname": "RLKL", "severity": "critical"}
    alerts = [
        {"status": "firing", "labels": labels, "annotations": notes, "startsAt": began},
        {"status": "resolved", "labels": {"alertname": "RLStalled"}, "annotations": {"summary": "It stalls."}},
    ]
    data = {"status": "firing", "alerts": alerts, "commonLabels": {"run": "a b", "severity": "critical"}}
    data |= {"externalURL": "http://alerts", "groupLabels": {}, "commonAnnotations": {}}
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "none.tmpl").write_text("")

    def rendered(text: str) -> str:
        options = [f"--template.glob={tmp_path / 'none.tmpl'}", f"--template.data={tmp_path / 'data.json'}"]
        amtool = require_alertmanager(generation) / "amtool"
        return printed(amtool, "template", "render", *options, f"--template.text={text}")

    assert rendered(pagerduty["description"]).strip() == "[critical] a b: RLKL"
    assert rendered(pagerduty["details"][0]["value"]).strip().splitlines() == [
        "*[critical] RLKL*",
        "KL is high.",
        "kl is 7.",
        "Runbook: http://docs/a.md",
        "Dashboard: http://grafana/d/a?b&from=1000&to=10921000",
        "Panel: http://grafana/d/a?b&viewPanel=7&from=1000&to=10921000",
        "*[resolved] RLStalled*",
        "It stalls.",
        "Silence this run: http://alerts/#/silences/new?filter=%7Bcluster%3D%22%22%2Cnamespace%3D%22%22%2Cjob%3D%22%22%2C"
        "run%3D%22a%20b%22%2Cteam%3D%22%22%2Cuser%3D%22%22%7D",
    ]


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job(path: Path) -> None:
    """The PodMonitor finds the pod and its port, and the exporter listens where it asks.

    It has time for the final state after SIGTERM, no probe that would restart it, and no rights.
    """
    monitor, job = load(FOLDER / "podmonitor.yaml"), load(path)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    spec = pod["spec"]
    assert spec["terminationGracePeriodSeconds"] >= 30
    assert (spec["restartPolicy"], spec["securityContext"]["runAsNonRoot"]) == ("Never", True)
    (container,) = spec["containers"]
    settings = Settings.load({}, {each["name"]: each["value"] for each in container["env"]})
    assert settings.host == "0.0.0.0"
    assert container["ports"] == [{"name": "metrics", "containerPort": settings.port}]
    assert not {"readinessProbe", "livenessProbe", "startupProbe"} & set(container)
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_what_the_monitor_adds() -> None:
    """It collides with no label of a series, and alerts survive it; its rules: test_kubernetes_ports.py."""
    (endpoint,) = load(FOLDER / "podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert (endpoint["path"], endpoint["interval"], endpoint["honorLabels"]) == ("/metrics", "15s", False)
    assert OF_TARGETS.isdisjoint({"run", "rank"}.union(*(metric.labels for metric in CATALOG)))
    assert OF_TARGETS - set(LOST_WITHOUT) == {"namespace", "job"}, "labels of one pod would end an alert with the pod"


def test_the_sidecar_finds_the_dashboards(built: list[dict[str, Any]]) -> None:
    """In another namespace than Grafana's: its values name the label, the annotation, and all namespaces."""
    sidecar = load(FOLDER / "grafana-values.yaml")["sidecar"]["dashboards"]
    maps = [each["metadata"] for each in built if each["kind"] == "ConfigMap"]
    assert {each["labels"][sidecar["label"]] for each in maps} == {sidecar["labelValue"]}
    assert {each["annotations"][sidecar["folderAnnotation"]] for each in maps} == {"RL training"}
    assert (sidecar["enabled"], sidecar["searchNamespace"]) == (True, "ALL")
    assert sidecar["provider"]["foldersFromFilesStructure"] is True, "else the folder of the annotation is no folder"
    for where in (FOLDER / "kustomization.yaml", ROOT / "grafana/kustomization.yaml"):
        assert {"searchNamespace", "grafana-values.yaml"} <= set(re.findall(r"[\w.-]*[\w]", where.read_text()))


def test_schemas(built: list[dict[str, Any]]) -> None:
    """Types, patterns and allowed words of the operator's and of Kubernetes' own definitions; not unknown fields."""
    wrong = load(JOBS[1])
    wrong["spec"]["backoffLimit"] = "two"
    (monitor,) = (json.loads(json.dumps(each)) for each in built if each["kind"] == "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "15x"
    objects = [*built, *map(load, JOBS), monitor, wrong]
    interval, limit = evaluated("kubernetes-models", VALIDATE, objects)
    assert interval.startswith("PodMonitor: data/spec/podMetricsEndpoints/0/interval must match pattern")
    assert "backoffLimit" in limit
