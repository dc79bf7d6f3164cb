"""Other exporters as a Prometheus finds them: the same names and labels, with values that tell who said what.

Where each name is from:

* DCGM exporter: its `etc/default-counters.csv`, `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL` from the lines there that are comments;
  labels from `internal/pkg/rendermetrics/render_metrics.go` (`Hostname` up to 4.8.2, `hostname` since its pull request
  655) and `internal/pkg/transformation/const.go` (`pod`, `namespace`, `container` of whom a GPU is given to).
* kube-state-metrics: `docs/metrics/workload/pod-metrics.md`. cAdvisor: its `docs/storage/prometheus.md`.
* node exporter: `collector/fixtures/e2e-output.txt`; `node_vmstat_oom_kill` is in the default of
  `--collector.vmstat.fields`.
* vLLM: `docs/design/metrics.md` and `vllm/v1/metrics/loggers.py`; the older names from `docs.vllm.ai/en/v0.8.5`.

What a ServiceMonitor adds (`pod`, `namespace` of the exporter itself) stands in the labels of the target, so that it is
Prometheus that moves the exporter's own aside (`exported_pod`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Labels = dict[str, str]


@dataclass(frozen=True)
class Sample:
    """One line of a scrape. ``grows``: it is a counter, and ``value`` is its rate a second."""

    name: str
    value: float
    labels: Labels = field(default_factory=dict)
    grows: bool = False

    def line(self, seconds: float) -> str:
        """The line as it is ``seconds`` after the start."""
        inside = ",".join(f"{name}={json.dumps(value)}" for name, value in self.labels.items())
        return f"{self.name}{{{inside}}} {self.value * seconds if self.grows else self.value}"


@dataclass(frozen=True)
class Target:
    """An exporter, and the labels that Prometheus gives to what it scrapes there."""

    job: str
    instance: str
    samples: Sequence[Sample]
    labels: Labels = field(default_factory=dict)


def gpu(index: int, value: float, owner: Labels | None = None, **labels: str) -> list[Sample]:
    """A GPU as the DCGM exporter tells it: 1 is 1 % busy, 1 MiB used, 1 W, 1 °C and so on, more is more."""
    about = {"gpu": str(index), "UUID": f"GPU-{value:g}", "device": f"nvidia{index}", "modelName": "NVIDIA H100"}
    about |= {**labels, **(owner or {})}
    gauges = ("DEV_GPU_UTIL", "DEV_FB_USED", "DEV_FB_FREE", "DEV_POWER_USAGE", "DEV_GPU_TEMP")
    errors = ("DEV_XID_ERRORS", "DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_FAILURE", "DEV_ECC_DBE_VOL_TOTAL")
    found = [Sample(f"DCGM_FI_{name}", value, about) for name in (*gauges, *errors)]
    return [*found, Sample("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", value / 100, about)]


def given(namespace: str, pod: str) -> Labels:
    """The labels of a GPU that Kubernetes gave to a pod."""
    return {"namespace": namespace, "pod": pod, "container": "train"}


def host(name: str, value: float) -> list[Sample]:
    """A host as the node exporter tells it: ``value`` is the share of CPU, memory and disk that is used, and a rate."""
    whole, disk = 1e9, {"device": "/dev/sda1", "fstype": "ext4", "mountpoint": "/"}
    idle = [
        Sample("node_cpu_seconds_total", 1 - value, {"cpu": str(cpu), "mode": "idle"}, grows=True) for cpu in range(2)
    ]
    flows = (
        *(("node_disk_read_bytes_total", "sda"), ("node_disk_written_bytes_total", "sda")),
        *(("node_network_receive_bytes_total", "eth0"), ("node_network_transmit_bytes_total", "eth0")),
        *(("node_network_receive_bytes_total", "lo"), ("node_infiniband_port_data_received_bytes_total", "mlx5_0")),
        ("node_infiniband_port_data_transmitted_bytes_total", "mlx5_0"),
    )
    return [
        Sample("node_uname_info", 1, {"nodename": name, "machine": "x86_64", "release": "6.1.0", "sysname": "Linux"}),
        *idle,
        *(Sample(counter, 1000 * value, {"device": device}, grows=True) for counter, device in flows),
        Sample("node_memory_MemTotal_bytes", whole),
        Sample("node_memory_MemAvailable_bytes", whole * (1 - value)),
        Sample("node_filesystem_size_bytes", whole, disk),
        Sample("node_filesystem_avail_bytes", whole * (1 - value), disk),
        Sample("node_filesystem_avail_bytes", 0, {"device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/run"}),
        Sample("node_filesystem_size_bytes", whole, {"device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/run"}),
        Sample("node_vmstat_oom_kill", value, grows=True),
    ]


def pod(namespace: str, name: str, node: str, value: float, reason: str = "") -> list[Sample]:
    """A pod as kube-state-metrics tells it: ``value`` restarts, twice as much requested, and three times at most.

    ``reason``: why its container has ended.
    """
    of = {"namespace": namespace, "pod": name, "uid": f"{namespace}-{name}"}
    container = {**of, "container": "train"}
    phase = "Failed" if reason else "Running"
    phases = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
    amounts = [
        Sample(f"kube_pod_container_resource_{what}", times * value, {**container, "node": node, **resource})
        for what, times in (("requests", 2), ("limits", 3))
        for resource in ({"resource": "cpu", "unit": "core"}, {"resource": "memory", "unit": "byte"})
    ]
    gpus = {**container, "node": node, "resource": "nvidia_com_gpu", "unit": "integer"}
    ended = (
        [Sample("kube_pod_container_status_terminated_reason", 1, {**container, "reason": reason})] if reason else []
    )
    return [
        Sample("kube_pod_info", 1, {**of, "node": node, "host_ip": "10.0.0.1", "pod_ip": "10.1.0.1"}),
        *(Sample("kube_pod_status_phase", float(each == phase), {**of, "phase": each}) for each in phases),
        Sample("kube_pod_container_status_restarts_total", value, container),
        *amounts,
        Sample("kube_pod_container_resource_limits", value, gpus),
        *ended,
    ]


def used(namespace: str, name: str, value: float) -> list[Sample]:
    """A pod as cAdvisor tells it: its container, and the cgroup that holds all containers."""
    each = [{"namespace": namespace, "pod": name, "container": container} for container in ("train", "")]
    memory = [Sample("container_memory_working_set_bytes", value, labels) for labels in each]
    return memory + [Sample("container_cpu_usage_seconds_total", value, labels, grows=True) for labels in each]


def server(model: str, value: float, *, old: bool = False, engines: int = 1) -> list[Sample]:
    """A vLLM server, each engine with ``value`` requests, tokens a second and so on. ``old``: as of 0.8."""
    cache = "vllm:gpu_cache_usage_perc" if old else "vllm:kv_cache_usage_perc"
    later = "vllm:time_per_output_token_seconds" if old else "vllm:inter_token_latency_seconds"
    found = []
    for engine in range(engines):
        of = {"model_name": model, **({} if old else {"engine": str(engine)})}
        found += [
            Sample("vllm:num_requests_running", value, of),
            Sample("vllm:num_requests_waiting", value, of),
            Sample(cache, value / 100, of),
            *(
                Sample(f"vllm:{name}_total", value, of, grows=True)
                for name in ("generation_tokens", "prompt_tokens", "num_preemptions")
            ),
            *(
                Sample(f"{histogram}_bucket", share * value, {**of, "le": bound}, grows=True)
                for histogram in ("vllm:time_to_first_token_seconds", later)
                for bound, share in (("0.5", 0.0), ("1.0", 1.0), ("+Inf", 1.0))
            ),
        ]
    return found


@contextmanager
def serving(targets: Sequence[Target]) -> Iterator[list[dict[str, Any]]]:
    """Serve them all on one loopback port, each at a path of its own; as static configurations of a scrape job."""
    since = time.time()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seconds = time.time() - since
            lines = [each.line(seconds) for each in targets[int(self.path.strip("/"))].samples]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(("\n".join(lines) + "\n").encode())

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    http = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield [_found(f"127.0.0.1:{http.server_address[1]}", f"/{i}", each) for i, each in enumerate(targets)]
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _found(address: str, path: str, target: Target) -> dict[str, Any]:
    about = {"job": target.job, "instance": target.instance, "__metrics_path__": path}
    return {"targets": [address], "labels": {**about, **target.labels}}
