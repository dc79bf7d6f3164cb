"""Which ports of a pod are scraped, by a real Prometheus.

Debian builds it without Kubernetes. So what its discovery says of a pod is written down here as targets, one for each
declared port and one for a container without any; and what the operator makes of a PodMonitor, after its own
`generatePodMonitorConfig`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlexporter import Exporter, Rank
from rlexporter.config.settings import DEFAULT_PORT
from tests.deploy.test_kubernetes import FOLDER, load
from tests.deploy.test_kubernetes_nodes import EXAMPLES, ports, training
from tests.tools import eventually, free_port, prometheus

META = "__meta_kubernetes_"
EXAMPLE = FOLDER / "example-job.yaml"


def declared(*, ranks: bool) -> list[dict[str, Any]]:
    """The ports of the example; ``ranks``: with those of other ranks, which it has as comments."""
    text = EXAMPLE.read_text()
    if ranks:
        text = re.sub(r"^( +)# (- name: metrics-\d|  containerPort: \d+)$", r"\1\2", text, flags=re.MULTILINE)
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    found: list[dict[str, Any]] = container["ports"]
    return found


def test_the_example_has_the_port_of_each_rank() -> None:
    """Its local rank after the first one, by number and by name; without the comments there is one."""
    assert declared(ranks=False) == [{"name": "metrics", "containerPort": DEFAULT_PORT}]
    assert declared(ranks=True) == [
        {"name": f"metrics-{rank}" if rank else "metrics", "containerPort": DEFAULT_PORT + rank} for rank in range(4)
    ]


def relabelings(monitor: dict[str, Any]) -> list[dict[str, Any]]:
    """What the operator writes for the one endpoint of a PodMonitor: its own, then those of the endpoint."""
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert not {"port", "portNumber", "targetPort"} & set(endpoint), "then the operator would add a filter"
    keep = [
        {"source_labels": [f"{META}pod_label_{name}"], "regex": value, "action": "keep"}
        for name, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    label = [
        {"source_labels": [f"{META}{source}"], "target_label": target}
        for source, target in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod"))
    ]
    ended = {"source_labels": [f"{META}pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    own = [{words.get(key, key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    return [ended, *keep, *label, *own]


def discovered(pod: str, ports: dict[str, int], phase: str = "Running", **labels: str) -> list[dict[str, Any]]:
    """The targets that discovery finds in a pod of this machine, which also has a sidecar without a port."""
    about = {"namespace": "ml", "pod_name": pod, "pod_phase": phase, "pod_node_name": "gpu-01"}
    about |= {f"pod_label_{name}": value for name, value in labels.items()}
    found = [
        (f"127.0.0.1:{port}", {"pod_container_name": "train", "pod_container_port_name": name})
        for name, port in ports.items()
    ]
    found.append(("127.0.0.1:80", {"pod_container_name": "sidecar"}))
    return [
        {"targets": [target], "labels": {f"{META}{name}": value for name, value in (about | more).items()}}
        for target, more in found
    ]


@pytest.mark.waits
def test_every_rank_of_every_node_is_found(tmp_path: Path) -> None:
    """Of JobSet, PyTorchJob and KubeRay, which add labels and ports to the pods; of those ports none is scraped."""
    added: dict[str, tuple[dict[str, int], dict[str, str]]] = {
        "jobset": ({}, {"jobset_sigs_k8s_io_jobset_name": "grpo"}),
        "pytorchjob": ({"pytorchjob-port": 23456}, {"training_kubeflow_org_job_name": "grpo"}),
        "rayjob": ({"metrics": 8080}, {"ray_io_node_type": "worker"}),
    }
    assert set(added) == {path.stem for path in EXAMPLES}
    targets, expected = [], set()
    for number, path in enumerate(EXAMPLES):
        ((own, labels), pod) = added[path.stem], training(path)[0]
        for node in range(2):
            host = f"127.0.{number}.{node + 1}"
            found = discovered(f"{path.stem}-{node}", own | ports(pod), **pod["metadata"]["labels"], **labels)
            targets += [each | {"targets": [each["targets"][0].replace("127.0.0.1", host)]} for each in found]
            expected |= {f"{host}:{port}" for port in ports(pod).values()}
    head = discovered("head", {"gcs-server": 6379, "metrics": 8080}, ray_io_node_type="head")
    rules = relabelings(load(FOLDER / "podmonitor.yaml"))
    scrape = {"static_configs": [*targets, *head], "relabel_configs": rules}
    with prometheus("3", tmp_path, [], scrape=scrape) as server:
        found = eventually(lambda: server.get("targets", state="active")["activeTargets"])
    assert {each["labels"]["instance"] for each in found} == expected
    assert len(found) == len(expected) == 3 * 2 * 8


@pytest.mark.slow
@pytest.mark.waits
def test_every_rank_of_a_pod_is_scraped(tmp_path: Path) -> None:
    """On the port that the pod declares for it; other ports and pods, and containers without a port, are left alone."""
    ranks = [
        Exporter(run="r", port=0, rank=Rank(rank, world_size=2), ranks="all", algorithm="grpo").start()
        for rank in (0, 1)
    ]
    served = {f"metrics-{rank}" if rank else "metrics": each.port or 0 for rank, each in enumerate(ranks)}
    more = {"metrics-old": free_port(), "http": free_port(), "web-metrics": free_port()}
    targets = [
        *discovered("trains", {**served, **more}, rlexporter="enabled"),
        *discovered("has-ended", {"metrics": free_port()}, phase="Succeeded", rlexporter="enabled"),
        *discovered("other", {"metrics": free_port()}, app="other"),
    ]
    rules = relabelings(load(FOLDER / "podmonitor.yaml"))
    try:
        with prometheus("3", tmp_path, [], scrape={"static_configs": targets, "relabel_configs": rules}) as server:
            found = eventually(lambda: len(up := server.query("up == 1")) == 2 and up)
            states = server.query('rl_run_state{state="starting"}')
            assert {each["metric"]["endpoint"]: each["metric"]["instance"] for each in found} == {
                name: f"127.0.0.1:{port}" for name, port in served.items()
            }
            assert {(each["metric"]["rank"], each["metric"]["endpoint"]) for each in states} == {
                ("0", "metrics"),
                ("1", "metrics-1"),
            }
            assert len(server.query("up")) == 2
            assert {(each["metric"]["pod"], each["metric"]["node"]) for each in found} == {("trains", "gpu-01")}
    finally:
        for exporter in ranks:
            exporter.close()
