"""Trainings on several nodes, and who may connect to them: deploy/kubernetes/examples and networkpolicy.yaml.

No operator and no network plugin runs here. What they would do is written down after their code, and said to be so.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter.config.settings import FROM, Settings
from rlexporter.run.identity import shared_id
from tests.deploy.test_kubernetes import FOLDER, VALIDATE, load
from tests.programs import evaluated, printed
from tests.tools import ROOT, require_tool

EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))
EACH_EXAMPLE = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
POLICY = FOLDER / "networkpolicy.yaml"
LABEL = {"rlexporter": "enabled"}
GPUS = 8


def templates(found: Any) -> list[dict[str, Any]]:
    """The pods of an object, wherever its operator looks for them."""
    if isinstance(found, dict) and "containers" in (found.get("spec") or {}):
        return [found]
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return [pod for each in inner for pod in templates(each)]


def training(path: Path) -> list[dict[str, Any]]:
    """Those of its pods that train: they have the label."""
    return [pod for pod in templates(load(path)) if LABEL.items() <= pod.get("metadata", {}).get("labels", {}).items()]


def ports(pod: dict[str, Any]) -> dict[str, int]:
    """The ports that a pod declares, by name."""
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each["containerPort"] for each in container.get("ports", ())}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """The variables of a pod."""
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_all_are_here() -> None:
    """Three operators; each file says at its head that it never ran, and of which version its schema is."""
    assert {load(path)["kind"] for path in EXAMPLES} == {"JobSet", "PyTorchJob", "RayJob"}
    schemas = json.loads((ROOT / "tests/data/crds.json").read_text())
    for path in (*EXAMPLES, POLICY):
        head = " ".join(re.findall("^# ?(.*)", path.read_text().partition("\napiVersion")[0], re.MULTILINE))
        assert "It never ran on a cluster" in head
        assert path == POLICY or schemas[load(path)["kind"]]["$comment"].split()[1] in head


@EACH_EXAMPLE
def test_an_object_fits_its_definition(path: Path) -> None:
    """By the schema of its operator, in which a field of another name is a fault; its pods: `test_schemas`."""
    validator = pytest.importorskip("jsonschema").Draft7Validator
    found = load(path)
    schema = json.loads((ROOT / "tests/data/crds.json").read_text())[found["kind"]]
    assert [error.message for error in validator(schema).iter_errors(found)] == []
    found["spec"]["nodes"] = 2
    assert [error.message for error in validator(schema).iter_errors(found)] != []


@pytest.mark.slow
def test_schemas() -> None:
    """The pods and the policy fit the definitions of Kubernetes itself."""
    pods = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": path.stem}, "template": pod}
        for path in EXAMPLES
        for pod in templates(load(path))
    ]
    assert len(pods) == 5
    wrong = json.loads(json.dumps(pods[0]))
    wrong["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "metrics"
    assert evaluated("kubernetes-models", VALIDATE, [*pods, load(POLICY)]) == []
    (fault,) = evaluated("kubernetes-models", VALIDATE, [wrong])
    assert "containerPort" in fault


@EACH_EXAMPLE
def test_every_rank_has_a_port(path: Path) -> None:
    """Two pods train, with eight ranks each that serve to the network, each on a port with a name that is scraped."""
    found = load(path)
    pods = training(path)
    for pod in pods:
        settings = Settings.load({}, environment(pod))
        assert (settings.host, settings.ranks) == ("0.0.0.0", "all")
        first = "metrics-0" if found["kind"] == "RayJob" else "metrics"
        names = [first, *(f"metrics-{rank}" for rank in range(1, GPUS))]
        assert ports(pod) == {name: settings.port + rank for rank, name in enumerate(names)}
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS)
    counts = {
        "JobSet": lambda spec: spec["replicatedJobs"][0]["template"]["spec"]["completions"],
        "PyTorchJob": lambda spec: sum(each["replicas"] for each in spec["pytorchReplicaSpecs"].values()),
        "RayJob": lambda spec: spec["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"],
    }
    assert counts[found["kind"]](found["spec"]) == 2
    assert len(pods) == (2 if found["kind"] == "PyTorchJob" else 1)


@EACH_EXAMPLE
def test_a_pod(path: Path) -> None:
    """It has time for the final state after SIGTERM, no probe that would restart it, and no rights."""
    for pod in templates(load(path)):
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert not {"readinessProbe", "livenessProbe", "startupProbe"} & set(container)
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert all(pod["spec"]["terminationGracePeriodSeconds"] >= 30 for pod in training(path))


def test_torchrun_is_told_of_all() -> None:
    """By the command in a JobSet, whose Service names its first pod; in a PyTorchJob by the operator."""
    jobset, job = (load(FOLDER / f"examples/{name}.yaml") for name in ("jobset", "pytorchjob"))
    (workers,) = jobset["spec"]["replicatedJobs"]
    (container,) = templates(jobset)[0]["spec"]["containers"]
    name, spec = jobset["metadata"]["name"], workers["template"]["spec"]
    assert spec["parallelism"] == spec["completions"]
    assert {
        f"--nnodes={spec['completions']}",
        f"--nproc-per-node={GPUS}",
        f"--master-addr={name}-{workers['name']}-0-0.{name}",
    } <= set(container["command"])
    assert job["spec"]["nprocPerNode"] == str(GPUS)
    assert {each["spec"]["containers"][0]["name"] for each in templates(job)} == {"pytorch"}


@pytest.mark.parametrize(
    "pods", [("grpo-workers-0-0", "grpo-workers-0-1"), ("grpo-master-0", "grpo-worker-0")], ids=["jobset", "pytorchjob"]
)
def test_both_nodes_are_one_run(pods: tuple[str, str]) -> None:
    """By what the names of their pods share, which is the name of the example."""
    ids = {shared_id({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": pod}) for pod in pods}
    assert ids == {load(FOLDER / "examples/jobset.yaml")["metadata"]["name"]} == {"grpo"}


def test_variables_are_settings() -> None:
    """No file that is deployed, and no example, names a variable of ours that there is not."""
    known = {each.metadata["env"] for each in fields(Settings)} | {FROM}
    found = [path for top in ("deploy", "examples") for path in (ROOT / top).rglob("*.*") if path.is_file()]
    files = [path for path in found if path.suffix != ".pyc"]  # an example that was imported leaves one
    told = {(path.name, name) for path in files for name in re.findall(r"\bRLEXPORTER_[A-Z_]+", path.read_text())}
    assert {"jobset.yaml", "pytorchjob.yaml", "rayjob.yaml", "networkpolicy.yaml", "example-job.yaml"} <= {
        path.name for path in files
    }
    assert [each for each in told if each[1] not in known] == []
    assert {path.name for path in EXAMPLES} <= {name for name, _ in told}


PROMETHEUS = ("monitoring", {"app.kubernetes.io/name": "prometheus"})
RANK = ("ml", LABEL)
RAY_HEAD = ("ml", {"ray.io/node-type": "head"})
RULES = load(POLICY)["spec"]["ingress"]
STRANGERS = (
    ("ml", {"app": "notebook"}),
    ("monitoring", {"app.kubernetes.io/name": "grafana"}),
    ("other", {"app.kubernetes.io/name": "prometheus"}),
    ("other", LABEL),
)
"""Pods, by their namespace and labels; those that are guarded are in `ml`."""


def may_connect(pod: tuple[str, dict[str, str]], port: int, protocol: str = "TCP", *, ranges: bool = True) -> bool:
    """Whether the policy lets this pod in, by the rules of Kubernetes; ``ranges``: the plugin knows `endPort`."""
    namespace, labels = pod

    def is_from(peer: dict[str, Any]) -> bool:
        where = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "ml"}})
        same = where["matchLabels"] == {"kubernetes.io/metadata.name": namespace}
        return bool(same and peer["podSelector"]["matchLabels"].items() <= labels.items())

    def is_to(each: dict[str, Any]) -> bool:
        first = each.get("port", 1)
        last = each.get("endPort", first) if ranges else first
        return bool(each["protocol"] == protocol and ("port" not in each or first <= port <= last))

    return any(
        ("from" not in rule or any(map(is_from, rule["from"])))
        and ("ports" not in rule or any(map(is_to, rule["ports"])))
        for rule in RULES
    )


def test_who_may_read_the_metrics() -> None:
    """Of each port that an example declares: Prometheus and the other ranks, and nobody else in or out of `ml`."""
    spec = load(POLICY)["spec"]
    assert spec["podSelector"] == load(FOLDER / "podmonitor.yaml")["spec"]["selector"] == {"matchLabels": LABEL}
    assert spec["policyTypes"] == ["Ingress"]
    declared = {port for path in EXAMPLES for pod in training(path) for port in ports(pod).values()}
    assert len(declared) == GPUS
    assert {port for port in range(1, 65536) if not may_connect(STRANGERS[0], port)} == declared
    for port in declared:
        assert [each for each in (PROMETHEUS, RANK, RAY_HEAD) if not may_connect(each, port)] == []
        assert [each for each in STRANGERS if may_connect(each, port)] == []


def test_the_training_still_connects() -> None:
    """Ranks on every port, also by a plugin that ignores ranges; all others wherever there are no metrics."""
    for port in (1, 9749, 9758, 23456, 29500, 65535):
        assert all(may_connect(each, port) for each in (PROMETHEUS, RANK, RAY_HEAD, *STRANGERS))
        assert all(may_connect(each, port, ranges=False) for each in (RANK, RAY_HEAD))
    assert all(may_connect(each, 4791, protocol) for each in STRANGERS for protocol in ("UDP", "SCTP"))


@pytest.mark.slow
def test_kustomize_builds_them(tmp_path: Path) -> None:
    """As parts of a kustomization of one's own, which changes nothing but the namespace."""
    names = [Path(shutil.copy(path, tmp_path)).name for path in (*EXAMPLES, POLICY)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": "ml", "resources": names}))
    built = list(yaml.safe_load_all(printed(require_tool("kustomize"), "build", tmp_path)))
    assert {each["kind"]: each["metadata"].pop("namespace") for each in built} == dict.fromkeys(
        ["JobSet", "PyTorchJob", "RayJob", "NetworkPolicy"], "ml"
    )
    assert sorted(built, key=str) == sorted(map(load, (*EXAMPLES, POLICY)), key=str)
