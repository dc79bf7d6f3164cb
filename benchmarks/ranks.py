"""What ranks cost a Prometheus: one run of many, each a target of its own, scraped by a real server.

The ranks are simulated: one process answers for all of them with what a real GRPO run served, its numbers growing.
Servers run one after the other, as many times as there are sizes; a rule group takes as long as its slowest moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import rlexporter
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus
from rlexporter.run import rank_view
from tests import tiny
from tests.tools import ROOT, Prometheus, free_port, require_tools, running

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
        now = exporter.run.current()
        exporter.close()
    return _text(now), _text(rank_view.own(now, "all")), _text(rank_view.own(now, "timings"))


def _text(snapshot: Snapshot) -> str:
    labels = {**snapshot.labels, "rank": _PLACE}
    shown = Snapshot(labels, snapshot.samples, snapshot.steps, snapshot.buckets, snapshot.totals)
    return prometheus.encode(shown, "")[0].decode()


def _series(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


def _measured(size: int, first: str, other: str) -> str:
    with tempfile.TemporaryDirectory() as folder, _answering(first, other) as port, _server(folder, size, port) as at:
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
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": f"/{rank}", "instance": f"node-{rank}"}}
        for rank in range(size)
    ]
    config = {
        "global": {"scrape_interval": f"{INTERVAL_SECONDS}s", "evaluation_interval": f"{INTERVAL_SECONDS}s"},
        "rule_files": [str(ROOT / "alerts/rlexporter.rules.yml")],
        "scrape_configs": [
            {"job_name": "rlexporter", "static_configs": targets},
            {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]},
        ],
    }
    file = Path(folder) / "prometheus.yml"
    file.write_text(json.dumps(config))
    command = [
        str(require_tools("3") / "prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with running(command, Path(folder), own):
        yield Prometheus(own)


@contextlib.contextmanager
def _answering(first: str, other: str) -> Iterator[int]:
    """All ranks in one process, each at its own path."""
    began = time.monotonic()

    def body(rank: int) -> bytes:
        grown = int(time.monotonic() - began) // INTERVAL_SECONDS
        text = first if rank == 0 else other
        return (
            _COUNT.sub(lambda found: f"{found[1]} {float(found[2]) * (1 + grown)}", text)
            .replace(_PLACE, str(rank))
            .encode()
        )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                text = body(int(head.split(b" ", 2)[1].strip(b"/")))
                kind = b"Content-Type: text/plain; version=0.0.4"
                writer.write(b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(text), text))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    port = int(server.sockets[0].getsockname()[1])
    urllib.request.urlopen(f"http://127.0.0.1:{port}/1").close()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
