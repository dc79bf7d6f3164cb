"""Rows for what other exporters say of the same run: its GPUs, its model server, its pods and hosts.

They stay closed, and closed rows ask nothing. Names of series are those of the exporters' own documentation, of summer
2026; tests/dashboards/exporters.py says where each is from. Older names come second, after an `or`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards import places
from scripts.pack.dashboards.boxes import COLORED, GRAY, ORANGE, RED, Column, table, words
from scripts.pack.dashboards.frame import Json, Page
from scripts.pack.dashboards.panels import Query, timeseries

TITLE = "Beside the run: "
"""Titles of the rows begin with it."""
NO_GPU = "DCGM exporter is not scraped, or knows no pod or host of this run"
NO_VLLM = "vLLM is not scraped, or serves another model. With vllm_mode=colocate there is no server"
NO_POD = "kube-state-metrics is not scraped, or the run is in no pod"
NO_CADVISOR = "neither kube-state-metrics nor cAdvisor is scraped, or the run is in no pod"
NO_NODE = "node exporter is not scraped, or knows no host of this run"
_SERVING = "Shows ranks that serve; with RLEXPORTER_RANKS=timings all of them do."
_GPU_LINE = "{{place}} GPU {{gpu}}"
_TARGET = "cluster, job, instance"
"""The labels that tell targets apart. Adding up cores before the run's hosts are picked costs a fraction of after."""


def build(page: Page) -> None:
    """Add the rows, closed."""
    page.row(f"{TITLE}GPU (DCGM exporter)", collapsed=True)
    _gpus(page)
    page.row(f"{TITLE}vLLM", collapsed=True)
    _vllm(page)
    page.row(f"{TITLE}pod and node", collapsed=True)
    _pods(page)
    _nodes(page)


def is_foreign(expr: str) -> bool:
    """Return whether an expression, or the name of a series, is about another exporter's."""
    return re.search(r"\b(DCGM_|vllm:|kube_|container_|node_)", expr) is not None


def _gpus(page: Page) -> None:
    utilization = (
        f"{_each_gpu('DCGM_FI_DEV_GPU_UTIL')} / 100 or {_each_gpu('DCGM_FI_PROF_GR_ENGINE_ACTIVE')}",
        "Share of the time in which any kernel ran; of the graphics engine, where a GPU is sliced (MIG). High in "
        "updates and low in between is normal; always low is a wait: for reward functions, a sampler, data.",
    )
    tensor = (
        _each_gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        "Share of cycles in which the tensor cores worked. A GPU that is busy by its utilization can be idle by this.",
    )
    used = (f"{_each_gpu('DCGM_FI_DEV_FB_USED')} * 1048576", "Memory that is taken, also by other processes.")
    free = (
        f"{_each_gpu('DCGM_FI_DEV_FB_FREE')} * 1048576",
        "Memory that is left: near 0 before an out-of-memory error. PyTorch keeps what it once took.",
    )
    power = (_each_gpu("DCGM_FI_DEV_POWER_USAGE"), "Power draw. Far below the others: idle, or throttled.")
    heat = (_each_gpu("DCGM_FI_DEV_GPU_TEMP"), "Temperature of the chip. Clocks fall where it is too hot.")
    for title, (expr, text), unit in (
        ("GPU utilization", utilization, "percentunit"),
        ("Tensor cores active", tensor, "percentunit"),
        ("GPU memory used", used, "bytes"),
        ("GPU memory free", free, "bytes"),
        ("GPU power", power, "watt"),
        ("GPU temperature", heat, "celsius"),
    ):
        page.add(_lines(title, [Query(expr, _GPU_LINE)], text + " " + _SERVING, unit, NO_GPU))
    page.add(_gpu_errors(), 24, 6)


def _gpu_errors() -> Json:
    """Return a table of what a GPU says is wrong with it; it outlives the process that it has killed."""
    none = {"mappings": [words({"0": ("none", GRAY)})], "custom__cellOptions": COLORED}
    bad = {**none, "thresholds": {"mode": "absolute", "steps": [_step(GRAY), _step(RED, 1.0)]}}
    worn = {**none, "thresholds": {"mode": "absolute", "steps": [_step(GRAY), _step(ORANGE, 1.0)]}}
    series = {
        "last XID": ("DCGM_FI_DEV_XID_ERRORS", bad),
        "double-bit ECC errors": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", bad),
        "remapping failed": ("DCGM_FI_DEV_ROW_REMAP_FAILURE", bad),
        "remapped rows": ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", worn),
    }
    columns = [
        Column(title, f"max by (place, gpu, modelName) ({places.gpus(name, ended=True)})", look)
        for title, (name, look) in series.items()
    ]
    return table(
        "GPU errors",
        columns,
        "XID: number of the driver's last error (48, 63, 64, 74, 79, 94, 95: the GPU or its memory; 13, 31, 43: mostly "
        "the program). ECC errors since the driver was loaded: the exporter has them only where its list of counters "
        "names them. Also of GPUs that the run had within the time that is shown.",
        labels={"place": {}, "gpu": {}, "modelName": {}},
        none=NO_GPU,
    )


def _vllm(page: Page) -> None:
    requests = [
        Query(_each_server("vllm:num_requests_running"), "{{instance}} running"),
        Query(_each_server("vllm:num_requests_waiting"), "{{instance}} waiting"),
    ]
    cache = f"{_fullest('vllm:kv_cache_usage_perc')} or {_fullest('vllm:gpu_cache_usage_perc')}"
    tokens = [
        Query(_each_server("vllm:generation_tokens_total", rated=True), "{{instance}} generated"),
        Query(_each_server("vllm:prompt_tokens_total", rated=True), "{{instance}} prompts"),
    ]
    preempted = Query(_each_server("vllm:num_preemptions_total", rated=True), "{{instance}}")
    for title, queries, text, unit in (
        ("Requests", requests, "Waiting while few run: the KV cache is full, or the server is held back.", "none"),
        (
            "KV cache used",
            [Query(cache, "{{instance}}")],
            "Of the fullest engine of a server. At 1 requests wait, and running ones are preempted.",
            "percentunit",
        ),
        ("Tokens per second", tokens, "All engines of a server together. 0 during an update is normal.", "none"),
        (
            "Preemptions per second",
            [preempted],
            "Requests that lost their KV cache and start again. 0 is good.",
            "none",
        ),
    ):
        page.add(_lines(title, queries, text, unit, NO_VLLM))
    _latencies(page)


def _latencies(page: Page) -> None:
    first, later = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
    before = "vllm:time_per_output_token_seconds"
    shares = (("median", 0.5), ("95 %", 0.95))
    starts = [Query(_quantile(share, first), name) for name, share in shares]
    text = "From the arrival of a request: the time in the queue is part of it."
    page.add(_lines("Time to first token", starts, text, "s", NO_VLLM))
    goes_on = [Query(f"{_quantile(share, later)} or {_quantile(share, before)}", name) for name, share in shares]
    page.add(_lines("Time between tokens", goes_on, "Within a request. Grows with the batch.", "s", NO_VLLM))


def _pods(page: Page) -> None:
    page.add(_pod_table(), 24, 6)
    for title, resource, used, unit in (
        ("Memory of the pod", "memory", 'container_memory_working_set_bytes{container!=""}', "bytes"),
        ("Cores of the pod", "cpu", _rate('container_cpu_usage_seconds_total{container!=""}'), "none"),
    ):
        asked = f'kube_pod_container_resource_%s{{resource="{resource}"}}'
        queries = [
            Query(_each_pod(used), "{{place}} used"),
            Query(_each_pod(asked % "requests"), "{{place}} requested"),
            Query(_each_pod(asked % "limits"), "{{place}} limit"),
        ]
        text = "All containers together; what is used is cAdvisor's. "
        told = {"memory": "At its limit a container is OOM-killed.", "cpu": "At its limit a container is throttled."}
        page.add(_lines(title, queries, text + told[resource], unit, NO_CADVISOR), 12)


def _pod_table() -> Json:
    """Return a table with a row for each pod and reason; it outlives the process, as the pod does."""

    def pod(series: str, *by: str) -> str:
        return f"max by ({', '.join(('place', *by))}) ({places.pods(series, ended=True)})"

    ends = " or ".join(
        pod(f"kube_pod_container_status_{when}_reason == 1", "reason") for when in ("terminated", "last_terminated")
    )
    gpus = 'kube_pod_container_resource_limits{resource=~"nvidia_com_.+|amd_com_gpu"}'
    columns = [
        Column("in", pod("kube_pod_info", "node")),
        Column("is", pod("kube_pod_status_phase == 1", "phase")),
        Column("ended", ends),
        Column("restarts", pod("kube_pod_container_status_restarts_total")),
        Column("GPUs", pod(gpus)),
    ]
    colors = {"OOMKilled": ("OOMKilled", RED), "Error": ("Error", RED), "Failed": ("Failed", RED)}
    look = {"mappings": [words(colors)], "custom__cellOptions": COLORED}
    return table(
        "Pods of the run",
        columns,
        "Phase, why a container has ended (OOMKilled: it took more memory than its limit), restarts of the container "
        "that has most, GPUs. Also of pods that the run had within the time that is shown. " + _SERVING,
        labels={"place": {}, "node": {}, "phase": look, "reason": look},
        hidden=("in", "is", "ended"),
        none=NO_POD,
    )


def _nodes(page: Page) -> None:
    cores = _rate('node_cpu_seconds_total{mode="idle"}')
    idle = places.nodes(f"avg by ({_TARGET}) ({cores})")
    left, whole = (_each_node(f"node_memory_{part}_bytes") for part in ("MemAvailable", "MemTotal"))
    disks = 'fstype!~"tmpfs|ramfs|overlay|squashfs"'
    room, size = (places.nodes(f"node_filesystem_{part}_bytes{{{disks}}}") for part in ("avail", "size"))
    by = "max by (instance, mountpoint)"
    # Its name does not end in _total: Prometheus 3 would remark on `increase`, and Grafana show that.
    killed = places.nodes("clamp_min(delta(node_vmstat_oom_kill[$__rate_interval]), 0)")
    for title, queries, text, unit in (
        (
            "Host: CPU busy",
            [Query(f"1 - max by (instance) ({idle})", "{{instance}}")],
            "Share of all cores. A few busy ones can hold a run back: reward functions, data loading.",
            "percentunit",
        ),
        ("Host: memory used", [Query(f"1 - {left} / {whole}", "{{instance}}")], "Without caches.", "percentunit"),
        (
            "Host: killed for memory",
            [Query(f"max by (instance) ({killed})", "{{instance}}")],
            "Processes that the kernel killed because memory, or a cgroup's share of it, was used up. 0 is good.",
            "none",
        ),
        (
            "Host: fullest file system",
            [Query(f"1 - min by (instance) ({by} ({room}) / {by} ({size}))", "{{instance}}")],
            "A full one ends a run at its next checkpoint.",
            "percentunit",
        ),
    ):
        page.add(_lines(title, queries, text + " " + _SERVING, unit, NO_NODE))
    _traffic(page)


def _traffic(page: Page) -> None:
    disks = [_flow("disk_read_bytes", "read"), _flow("disk_written_bytes", "written")]
    text = "All disks together. Checkpoints are peaks of what is written. "
    page.add(_lines("Host: disk traffic", disks, text + _SERVING, "Bps", NO_NODE))
    network = 'device!~"lo|veth.+|cali.+|cni.+|docker.+|flannel.+|lxc.+"'
    networks = [
        _flow(f"network_receive_bytes_total{{{network}}}", "in"),
        _flow(f"network_transmit_bytes_total{{{network}}}", "out"),
        _flow("infiniband_port_data_received_bytes", "InfiniBand in"),
        _flow("infiniband_port_data_transmitted_bytes", "InfiniBand out"),
    ]
    text = "All devices together, without virtual ones. Between hosts gradients mostly go over InfiniBand. "
    page.add(_lines("Host: network", networks, text + _SERVING, "Bps", NO_NODE))


def _each_gpu(series: str) -> str:
    return f"max by (place, gpu, GPU_I_ID) ({places.gpus(series)})"


def _each_server(series: str, *, rated: bool = False) -> str:
    """Return the sum over the engines of each server, however often it is scraped."""
    found = places.servers(series, _rate("{}") if rated else "{}")
    return f"sum by (instance) (max by (instance, engine, model_name) ({found}))"


def _fullest(series: str) -> str:
    return f"max by (instance) ({places.servers(series)})"


def _quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share}, sum by (le) ({places.servers(f'{histogram}_bucket', _rate('{}'))}))"


def _each_pod(series: str) -> str:
    return f"sum by (place) (max by (place, part) ({places.pods(series)}))"


def _each_node(series: str) -> str:
    return f"max by (instance) ({places.nodes(series)})"


def _flow(counter: str, legend: str) -> Query:
    series = f"node_{counter}" if "_total" in counter else f"node_{counter}_total"
    found = places.nodes(f"sum by ({_TARGET}) ({_rate(series)})")
    return Query(f"max by (instance) ({found})", "{{instance}} " + legend)


def _rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def _step(color: str, value: float | None = None) -> Mapping[str, object]:
    return {"color": color, "value": value}


def _lines(title: str, queries: Sequence[Query], description: str, unit: str, absent: str) -> Json:
    """Return a panel of what is no metric of ours, and has no healthy range."""
    shown = replace(NAMED["rl_step"], help=description, reading="", unit="", healthy=None)
    return timeseries(title, queries, shown, unit=unit, absent=absent)
