"""What a log line costs the training thread, and what a scrape costs the endpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from torch.utils.tensorboard import SummaryWriter

from benchmarks.measure import ratios, side_by_side
from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.watch import Watch, watch
from rlexporter.feed.feed import Feed
from rlexporter.model.metric import Kind, Metric, Series
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.outputs.prometheus import encode
from rlexporter.tensors.host import count as count_values


def _line(size: int) -> dict[str, float]:
    """Keys as GRPO logs them, and as many of one's own as it takes."""
    keys = [key.name for metric in CATALOG for key in metric.keys if "grpo" in key.algorithms and "{" not in key.name]
    of_a_step = (key for key in keys if not key.startswith(("eval_", "train_")))
    known = list(dict.fromkeys(of_a_step))[: min(size, 40)]
    return {key: 0.5 + i for i, key in enumerate([*known, *(f"mine/{i}" for i in range(size - len(known)))])}


def _judged(line: dict[str, float]) -> Callable[[], None]:
    """Records the line as the next step each time, and judges every condition."""
    feed, steps = _feed(watch()), count(1)
    return lambda: feed.record(line, next(steps))


def _feed(watch: Watch | None = None) -> Feed:
    feed = Feed(CATALOG, watch=watch)
    feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "bench", "rank": "0"})
    return feed


def _gauges(line: dict[str, float]) -> tuple[CollectorRegistry, dict[str, Gauge]]:
    registry = CollectorRegistry()
    return registry, {
        key: Gauge(f"rl_{i}", "A gauge.", ["run", "rank"], registry=registry) for i, key in enumerate(line)
    }


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| keys | recorded | `Gauge.labels().set()` a key | TensorBoard `add_scalar` a key | recorded and judged |"
    yield "|---|---|---|---|---|"
    for keys in (20, 60, 200):
        line, feed = _line(keys), _feed()
        judged = _judged(line)
        _, gauges = _gauges(line)

        def ours(line: dict[str, float] = line, feed: Feed = feed) -> None:
            feed.record(line, 1)

        def theirs(line: dict[str, float] = line, gauges: dict[str, Gauge] = gauges) -> None:
            for key, value in line.items():
                gauges[key].labels("bench", "0").set(value)

        with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:

            def board(line: dict[str, float] = line, writer: Any = writer) -> None:
                for key, value in line.items():
                    writer.add_scalar(key, value, 1)

            found = side_by_side({"ours": ours, "theirs": theirs, "board": board, "judged": judged}, wall=True)
        times = ratios(found, "ours")
        yield (
            f"| {keys} | {found['ours']} | {found['theirs']}: {times['theirs']:.1f}x | "
            f"{found['board']}: {times['board']:.1f}x | {found['judged']}: {times['judged']:.1f}x |"
        )


def scrape_rows() -> Iterator[str]:
    """The cost of one answer, beside that of prometheus_client for as many plain gauges."""
    yield "| series | rlexporter | prometheus_client, as many gauges |"
    yield "|---|---|---|"
    for observed in (False, True):
        yield _scrape(observed)


def _scrape(observed: bool) -> str:
    """A row: of a run that logs 60 keys, or of one of 160 keys whose histograms are ``observed`` as well."""
    feed = _feed()
    feed.record(_line(160 if observed else 60), 1)
    if observed:
        values = [0.01 * number for number in range(200)]
        series = [_labelled(metric) for metric in CATALOG if metric.kind is Kind.HISTOGRAM]
        feed.absorb(StepUpdate(step=1, seen={each: count_values(values, each.metric.bounds) for each in series}))
    body, _ = encode(feed.snapshot, "")
    lines = sum(not line.startswith(b"#") for line in body.splitlines())
    registry, gauges = _gauges({str(i): 0.0 for i in range(lines)})
    for gauge in gauges.values():
        gauge.labels("bench", "0").set(1.0)
    found = side_by_side({"ours": lambda: encode(feed.snapshot, ""), "theirs": lambda: generate_latest(registry)})
    return f"| {lines} | {found['ours']} | {found['theirs']} |"


def _labelled(metric: Metric) -> Series:
    return Series(metric, tuple(f"a {name}" for name in metric.labels))
