"""What ranks cost a Prometheus: one run of many, each a target of its own, scraped by a real server.

The ranks are simulated: one process answers for all of them with what a real GRPO run served, its numbers growing.
Servers run one after the other, as many times as there are sizes; a rule group takes as long as its slowest moment.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import rlexporter
from benchmarks import simulated
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus
from rlexporter.run import rank_view
from tests import tiny
from tests.tools import ROOT, Prometheus, free_port

SIZES = (64, 128, 256, 512)
INTERVAL_SECONDS = 5
_SECONDS = 60.0
_PLACE = "@RANK@"
_COUNT = re.compile(r"^(\S+(?:_bucket|_count|_total)\{.*\}) (\d+\.0)$", re.MULTILINE)


def rows() -> Iterator[str]:
    """The tables."""
    first, other, timings = _texts()
    yield "| endpoint | series | a scrape |"
    yield "|---|---|---|"
    for name, text in (("rank 0", first), ("another rank, `all`", other), ("another rank, `timings`", timings)):
        yield f"| {name} | {_series(text):,} | {len(text) / 1024:.0f} kB |"
    yield ""
    yield "| ranks | series | samples a second | a scrape, ms | all rules, ms | memory, MB | CPU, share of a core |"
    yield "|---|---|---|---|---|---|---|"
    for size in SIZES:
        yield _measured(size, first, other)


def _texts() -> tuple[str, str, str]:
    """What rank 0 of a real run serves, and what another rank would, with a place for its number."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = tiny.grpo(Path(folder), max_steps=10, num_iterations=2, eval_strategy="steps", eval_steps=5)
        exporter = rlexporter.attach(trainer, run="many", port=0)
        trainer.train()
        now = exporter.snapshot
        exporter.close()
    return _text(now), _text(rank_view.own(now, "all")), _text(rank_view.own(now, "timings"))


def _text(snapshot: Snapshot) -> str:
    labels = {**snapshot.labels, "rank": _PLACE}
    shown = Snapshot(labels, snapshot.samples, snapshot.steps, snapshot.buckets, snapshot.totals)
    return prometheus.encode(shown, "")[0].decode()


def _series(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


def _measured(size: int, first: str, other: str) -> str:
    answering = simulated.answering(_growing(first, other))
    with tempfile.TemporaryDirectory() as folder, answering as port, _server(folder, size, port) as at:
        time.sleep(_SECONDS)
        process = 'process_resident_memory_bytes{job="prometheus"}'
        found = {
            "series": "prometheus_tsdb_head_series",
            "samples": "sum(rate(prometheus_tsdb_head_samples_appended_total[30s]))",
            "scrape": 'quantile(0.5, scrape_duration_seconds{job="rlexporter"}) * 1000',
            "rules": "max(max_over_time(prometheus_rule_group_last_duration_seconds[30s])) * 1000",
            "memory": f"{process} / 1e6",
            "cpu": 'rate(process_cpu_seconds_total{job="prometheus"}[30s])',
            "up": 'count(up{job="rlexporter"} == 1)',
        }
        value = {name: at.value(query) or 0.0 for name, query in found.items()}
    if value["up"] != size:
        raise RuntimeError(f"{value['up']:.0f} of {size} targets answered")
    return (
        f"| {size} | {value['series']:,.0f} | {value['samples']:,.0f} | {value['scrape']:.1f} | {value['rules']:.0f} "
        f"| {value['memory']:.0f} | {value['cpu']:.2f} |"
    )


@contextlib.contextmanager
def _server(folder: str, size: int, port: int) -> Iterator[Prometheus]:
    own = free_port()
    config = {
        "global": {"scrape_interval": f"{INTERVAL_SECONDS}s", "evaluation_interval": f"{INTERVAL_SECONDS}s"},
        "rule_files": [str(ROOT / "alerts/rlexporter.rules.yml")],
        "scrape_configs": [
            {"job_name": "rlexporter", "static_configs": simulated.targets(port, size)},
            {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]},
        ],
    }
    with simulated.server("3", Path(folder), own, config) as server:
        yield server


def _growing(first: str, other: str) -> Callable[[int], str]:
    """What each rank answers: its counts grow with time."""
    began = time.monotonic()

    def text(rank: int) -> str:
        grown = int(time.monotonic() - began) // INTERVAL_SECONDS
        found = _COUNT.sub(lambda each: f"{each[1]} {float(each[2]) * (1 + grown)}", first if rank == 0 else other)
        return found.replace(_PLACE, str(rank))

    return text
