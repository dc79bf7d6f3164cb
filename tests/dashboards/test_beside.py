"""The rows beside a run, in a real server that scrapes real runs and, beside them, other exporters as they would be."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from rlexporter import Exporter, Rank
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from scripts.pack.dashboards import beside
from scripts.pack.dashboards.frame import Page
from tests.dashboards import exporters
from tests.dashboards.exporters import Target, given, gpu
from tests.dashboards.grafana import Json, View, legend
from tests.dashboards.test_queries import Server
from tests.tools import eventually, prometheus, scraped

pytestmark = pytest.mark.waits

_SECONDS = 60.0
RATE = 0.2
"""How far a rate may be off on a busy machine, which scrapes late: two places that are mixed up differ by more."""
_MODEL = "Qwen2.5-0.5B"


_PAGE = Page()
beside.build(_PAGE)
PANELS: Json = {panel["title"]: panel for row in _PAGE.panels for panel in row["panels"]}


@dataclass(frozen=True)
class Process:
    """A rank of a run, with the labels that its target has."""

    run: str
    rank: int
    labels: dict[str, str]


def _pod(namespace: str, pod: str, node: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "container": "train", "endpoint": "metrics", "node": node}


# What the PodMonitor, target files, and a configuration by hand give: test_kubernetes_ports.py, test_discovery.py.
PROCESSES = (
    Process("kube", 0, _pod("ml", "train-0", "node-a") | {"instance": "10.1.0.1:9750"}),
    Process("kube", 1, _pod("ml", "train-1", "node-b") | {"instance": "10.1.0.2:9750"}),
    Process("twin", 0, _pod("other", "train-0", "node-b") | {"instance": "10.1.0.3:9750"}),
    Process("slurm", 0, {"node": "gpu-01", "instance": "10.2.0.1:9750"}),
    Process("slurm", 1, {"node": "gpu-02", "instance": "10.2.0.2:9750"}),
    Process("slurm", 2, {"node": "gpu-02", "instance": "10.2.0.2:9751"}),
    Process("hand", 0, {"instance": "gpu-03:9750"}),
    Process("nowhere", 0, {"instance": "demo:9750"}),
)

_OPERATOR = {"namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}
_SYSTEM = {"namespace": "monitoring", "container": "exporter"}
_BARE = [*gpu(0, 21, hostname="gpu-01"), *gpu(1, 22, hostname="gpu-01")]
_KUBE_PODS = [
    *exporters.pod("ml", "train-0", "node-a", 1),
    *exporters.pod("ml", "train-1", "node-b", 2, reason="OOMKilled"),
    *exporters.pod("other", "train-0", "node-b", 3),
]
TARGETS = (
    # One that leaves the names of pods to Prometheus, with a GPU of another pod and one that is free.
    Target(
        "dcgm",
        "10.0.0.1:9400",
        [
            *gpu(0, 11, given("ml", "train-0"), hostname="node-a"),
            *gpu(1, 12, given("ml", "train-0"), hostname="node-a"),
            *gpu(2, 19, given("ml", "someone-else"), hostname="node-a"),
            *gpu(3, 18, hostname="node-a"),
        ],
        _OPERATOR | {"pod": "dcgm-a"},
    ),
    # One with honorLabels, and the label Hostname of older ones.
    Target(
        "dcgm",
        "10.0.0.2:9400",
        [
            *gpu(0, 13, given("ml", "train-1"), Hostname="node-b"),
            *gpu(1, 14, given("other", "train-0"), Hostname="node-b"),
        ],
    ),
    # Hosts without Kubernetes, one of them scraped twice; one that is not the run's.
    Target("dcgm", "gpu-01:9400", _BARE),
    Target("dcgm-too", "10.2.0.1:9401", _BARE),
    Target("dcgm", "10.2.0.2:9400", [*gpu(0, 23, Hostname="gpu-02"), *gpu(1, 24, Hostname="gpu-02")]),
    Target("dcgm", "10.2.0.3:9400", gpu(0, 25)[:-1], {"node": "gpu-03"}),
    Target("dcgm", "gpu-09:9400", gpu(0, 29, hostname="gpu-09")),
    # Two of a pair: one moves names aside, one does not.
    Target("ksm", "10.0.1.1:8080", _KUBE_PODS, _SYSTEM | {"pod": "ksm-0"}),
    Target("ksm", "10.0.1.2:8080", _KUBE_PODS),
    Target("kubelet", "node-a:10250", exporters.used("ml", "train-0", 1)),
    Target("kubelet", "node-b:10250", [*exporters.used("ml", "train-1", 2), *exporters.used("other", "train-0", 3)]),
    Target("node", "node-a", exporters.host("ip-10-0-0-1", 0.1), _SYSTEM | {"pod": "node-exporter-a"}),
    Target("node", "10.0.0.2:9100", exporters.host("node-b", 0.2), _SYSTEM | {"pod": "node-exporter-b"}),
    Target("node", "gpu-01:9100", exporters.host("gpu-01", 0.3)),
    Target("node-too", "gpu-01:9100", exporters.host("gpu-01", 0.3)),
    Target("node", "10.2.0.2:9100", exporters.host("gpu-02.cluster", 0.4)),
    Target("node", "gpu-03:9100", exporters.host("gpu-03", 0.5)),
    Target("node", "gpu-09:9100", exporters.host("gpu-09", 0.9)),
    # The model's name tells a server from another, in its namespace; a label `run` does, whatever the model.
    Target("vllm", "10.1.0.9:8000", exporters.server(f"Qwen/{_MODEL}", 4, engines=2), {"namespace": "ml"}),
    Target("vllm-too", "10.1.0.9:8000", exporters.server(f"Qwen/{_MODEL}", 4, engines=2), {"namespace": "ml"}),
    Target("vllm", "10.1.0.8:8000", exporters.server(f"Qwen/{_MODEL}", 5, old=True), {"namespace": "other"}),
    Target("vllm", "10.1.0.7:8000", exporters.server("Qwen/Qwen3-8B", 6), {"namespace": "ml"}),
    Target("vllm", "gpu-02:8000", exporters.server("/models/mine", 7), {"run": "slurm"}),
    Target("vllm", "gpu-09:8000", exporters.server("/models/mine", 8), {"run": "another"}),
)

_POD_0, _POD_1, _TWIN = "ml/train-0", "ml/train-1", "other/train-0"
Facts = Mapping[str, Mapping[str, float]]
"""What is to be found of each run: places, and what their exporters say there."""
_RUNS = ("kube", "twin", "slurm", "hand", "nowhere")
_GPUS: Facts = {
    "kube": {f"{_POD_0} GPU 0": 11, f"{_POD_0} GPU 1": 12, f"{_POD_1} GPU 0": 13},
    "twin": {f"{_TWIN} GPU 1": 14},
    "slurm": {"gpu-01 GPU 0": 21, "gpu-01 GPU 1": 22, "gpu-02 GPU 0": 23, "gpu-02 GPU 1": 24},
    "hand": {"gpu-03 GPU 0": 25},
}
_HOSTS: Facts = {
    "kube": {"node-a": 0.1, "10.0.0.2:9100": 0.2},
    "twin": {"10.0.0.2:9100": 0.2},
    "slurm": {"gpu-01:9100": 0.3, "10.2.0.2:9100": 0.4},
    "hand": {"gpu-03:9100": 0.5},
}
_PODS: Facts = {"kube": {_POD_0: 1, _POD_1: 2}, "twin": {_TWIN: 3}}
_SERVERS: Facts = {"kube": {"10.1.0.9:8000": 8}, "twin": {"10.1.0.8:8000": 5}, "slurm": {"gpu-02:8000": 7}}
_MODELS = {"kube": _MODEL, "twin": _MODEL, "slurm": "Qwen3-8B"}


@contextlib.contextmanager
def _runs() -> Iterator[list[dict[str, Any]]]:
    """Real exporters, as static configurations of a scrape job."""
    with contextlib.ExitStack() as stack:
        found = []
        for each in PROCESSES:
            several = sum(other.run == each.run for other in PROCESSES)
            exporter = Exporter(run=each.run, port=0, rank=Rank(each.rank, world_size=several), ranks="all", linger=0)
            stack.callback(exporter.close)
            exporter.start()
            exporter.run.prepare(RunFacts(algorithm="grpo", step=0, info={"model": _MODELS.get(each.run, "")}))
            exporter._run.enter(RunState.RUNNING)
            found.append({"targets": [f"127.0.0.1:{exporter.port}"], "labels": each.labels})
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server, at a moment at which everything ran; by now the runs are over, and the exporters go on."""
    with contextlib.ExitStack() as stack:
        others = stack.enter_context(exporters.serving(TARGETS))
        with _runs() as runs:
            folder, scrape = tmp_path_factory.mktemp("prometheus"), {"static_configs": [*runs, *others]}
            started = stack.enter_context(prometheus("3", folder, [], scrape=scrape))
            # Rates look back over eleven seconds.
            found = Server(started, scraped(started, len(runs) + len(others), time.time() + 15))
        eventually(lambda: not started.query("rl_run_start_timestamp_seconds"))
        yield found


def _view(run: str) -> View:
    return View({"job": "rlexporter", "run": run, "window": "60", "datasource": "prometheus"}, _SECONDS, 1.0)


def _lines(server: Server, run: str, title: str, at: float | None = None) -> dict[str, float]:
    """What a panel shows at a moment, by legend; first every query is asked for the time before as well."""
    shown: dict[str, float] = {}
    for target in PANELS[title]["targets"]:
        query = {"query": _view(run).fill(target["expr"], 10.0)}
        moment = server.at if at is None else at
        if not target["instant"]:
            server.ask("query_range", {**query, "start": f"{moment - _SECONDS}", "end": f"{moment}", "step": "10"})
        for each in server.ask("query", {**query, "time": f"{moment:.3f}"})["result"]:
            name = legend(target, each["metric"])
            assert "{{" not in name, (title, each)
            assert name not in shown, (title, name)
            shown[name] = float(each["value"][1])
    return shown


def _assert_shown(server: Server, title: str, facts: Facts, lines: Mapping[str, float], near: float = 0.02) -> None:
    """Of each run a panel shows its own places, and no others; ``lines``: by the end of their legend, a factor."""
    for run in _RUNS:
        places = facts.get(run, {}).items()
        expected = {place + end: factor * value for place, value in places for end, factor in lines.items()}
        assert _lines(server, run, title) == pytest.approx(expected, rel=near), (title, run)


@pytest.mark.slow
def test_the_gpus_of_a_run_and_no_others(server: Server) -> None:
    """By pod where Kubernetes gave them to one, else by host; each once, however often it is scraped."""
    profiled = {run: gpus for run, gpus in _GPUS.items() if run != "hand"}

    _assert_shown(server, "Tensor cores active", profiled, {"": 0.01})
    _assert_shown(server, "GPU utilization", _GPUS, {"": 0.01})
    _assert_shown(server, "GPU memory used", _GPUS, {"": 1048576})
    _assert_shown(server, "GPU memory free", _GPUS, {"": 1048576})
    _assert_shown(server, "GPU power", _GPUS, {"": 1})
    _assert_shown(server, "GPU temperature", _GPUS, {"": 1})


def test_the_hosts_of_a_run_and_no_others(server: Server) -> None:
    """By the name that the host has for itself, by that of its target, or by its address."""
    network = dict.fromkeys((" in", " out", " InfiniBand in", " InfiniBand out"), 1000)

    _assert_shown(server, "Host: CPU busy", _HOSTS, {"": 1}, RATE)
    _assert_shown(server, "Host: memory used", _HOSTS, {"": 1})
    _assert_shown(server, "Host: fullest file system", _HOSTS, {"": 1})
    _assert_shown(server, "Host: disk traffic", _HOSTS, {" read": 1000, " written": 1000}, RATE)
    _assert_shown(server, "Host: network", _HOSTS, network, RATE)
    for run in _RUNS:
        assert _lines(server, run, "Host: killed for memory").keys() == _HOSTS.get(run, {}).keys()


def test_the_pods_of_a_run_and_no_others(server: Server) -> None:
    """Not one of the same name in another namespace; used, requested and limit."""
    parts = {" used": 1, " requested": 2, " limit": 3}

    _assert_shown(server, "Memory of the pod", _PODS, parts)
    _assert_shown(server, "Cores of the pod", _PODS, parts, RATE)


def test_the_model_server_of_a_run_and_no_others(server: Server) -> None:
    """By the label `run`, else by model and namespace; all engines together; names of today and of 0.8."""
    fullest = {**_SERVERS, "kube": {"10.1.0.9:8000": 4}}  # of two engines

    _assert_shown(server, "Requests", _SERVERS, {" running": 1, " waiting": 1})
    _assert_shown(server, "Tokens per second", _SERVERS, {" generated": 1, " prompts": 1}, RATE)
    _assert_shown(server, "Preemptions per second", _SERVERS, {"": 1}, RATE)
    _assert_shown(server, "KV cache used", fullest, {"": 0.01})
    for title in ("Time to first token", "Time between tokens"):
        for run in _RUNS:
            expected = {"median": 0.75, "95 %": 0.975} if run in _SERVERS else {}
            assert _lines(server, run, title) == pytest.approx(expected, rel=0.02), (title, run)


def _rows_of(server: Server, run: str, title: str, column: int, at: float) -> list[dict[str, str]]:
    """The labels of a column of a table, and its value."""
    expr = _view(run).fill(PANELS[title]["targets"][column]["expr"], 10.0)
    found = server.ask("query", {"query": expr, "time": f"{at:.3f}"})["result"]
    return sorted(({**each["metric"], "value": each["value"][1]} for each in found), key=lambda each: each["place"])


def test_what_killed_a_run_is_told_when_it_is_gone(server: Server) -> None:
    """Tables still know where it was; lines end with it, since its GPUs may be another's by now."""
    now = time.time()
    assert server.instant(_view("kube"), "rl_run_start_timestamp_seconds")
    table = "Pods of the run"
    assert _lines(server, "kube", "GPU power", now) == {}
    assert _lines(server, "kube", "Memory of the pod", now) == {}

    assert _rows_of(server, "kube", table, 0, now) == [
        {"place": _POD_0, "node": "node-a", "value": "1"},
        {"place": _POD_1, "node": "node-b", "value": "1"},
    ]
    assert [(each["place"], each["phase"]) for each in _rows_of(server, "kube", table, 1, now)] == [
        (_POD_0, "Running"),
        (_POD_1, "Failed"),
    ]
    assert _rows_of(server, "kube", table, 2, now) == [{"place": _POD_1, "reason": "OOMKilled", "value": "1"}]
    for restarts_or_gpus in (3, 4):
        assert _rows_of(server, "kube", table, restarts_or_gpus, now) == [
            {"place": _POD_0, "value": "1"},
            {"place": _POD_1, "value": "2"},
        ]
    for column in range(4):
        xid = {
            (each["place"], each["gpu"]): each["value"] for each in _rows_of(server, "slurm", "GPU errors", column, now)
        }
        assert xid == {("gpu-01", "0"): "21", ("gpu-01", "1"): "22", ("gpu-02", "0"): "23", ("gpu-02", "1"): "24"}
