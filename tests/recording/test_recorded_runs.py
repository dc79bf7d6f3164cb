"""Recorded runs of real TRL trainers, through `Exporter.log`: nothing is lost, nothing raises.

`RLEXPORTER_RUNS=folder` replays every run below it; without it the windows in tests/data/runs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.catalog import CATALOG
from rlexporter.model.metric import Kind
from rlexporter.model.snapshot import Snapshot
from rlexporter.store.keys import Resolver, evaluation_prefix
from tests.conftest import DATA

FOLDER = Path(os.environ.get("RLEXPORTER_RUNS") or DATA / "runs")
FILES = sorted(FOLDER.rglob("*.jsonl"))
ALGORITHMS = {"grpo": "grpo", "rloo": "rloo", "ppo": "ppo", "ppo_legacy": "ppo-legacy"}

Line = tuple[int, dict[str, Any]]


def _lines(path: Path) -> tuple[str, list[Line]]:
    """The algorithm, and each log line with its step; what legacy PPO hands its tracker belongs to its stats."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    trainer = events[0]["trainer"].removesuffix("07").removesuffix("_mid")
    lines: list[Line] = []
    for event in events[1:]:
        if event["event"] == "log":
            lines.append((event["global_step"], event["logs"]))
        elif event["event"] == "stats":
            lines.append((event["global_step"] + 1, event["stats"]))
        elif event["event"] == "tracker_log":
            lines[-1][1].update(event["logs"])
    return ALGORITHMS[trainer], lines


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each)


def _check(snapshot: Snapshot, before: Snapshot, resolver: Resolver, line: dict[str, Any]) -> None:
    """Every value of a line is where it belongs, in the snapshot after it."""
    prefix = evaluation_prefix(tuple(line))
    for key, value in line.items():
        targets = resolver.resolve(key, prefix)
        assert targets, f"{key} is not in the catalogue"
        for series in targets:
            kind = series.metric.kind
            if kind is Kind.GAUGE and isinstance(value, (int, float)):
                assert snapshot.samples[series] == value or (math.isnan(value) and math.isnan(snapshot.samples[series]))
            elif kind is Kind.GAUGE and value is None:
                assert series not in snapshot.samples
                assert _count(snapshot, "rl_undefined_values_total", series.metric.series) > _count(
                    before, "rl_undefined_values_total", series.metric.series
                )
            elif kind is Kind.HISTOGRAM and isinstance(value, list) and series is targets[0]:
                _check_histogram(snapshot, before, series, list(_numbers(value)))
        bad = [number for number in _numbers(value) if not math.isfinite(number)]
        name = targets[0].metric.series
        assert _nonfinite(snapshot, name) - _nonfinite(before, name) >= bool(bad)


def _check_histogram(snapshot: Snapshot, before: Snapshot, series: Any, numbers: list[float]) -> None:
    """Its buckets have grown by an independent count of the numbers."""
    bounds = series.metric.bounds
    finite = [x for x in numbers if math.isfinite(x) and (x >= 0 or bounds[0] < 0)]
    was = before.buckets[series].counts if series in before.buckets else (0,) * (len(bounds) + 1)
    grown = [now - then for now, then in zip(snapshot.buckets[series].counts, was, strict=True)]
    expected = [0] * (len(bounds) + 1)
    for number in finite:
        expected[next((i for i, bound in enumerate(bounds) if number <= bound), len(bounds))] += 1
    assert grown == expected, series.metric.series


def _count(snapshot: Snapshot, name: str, metric: str) -> float:
    return snapshot.value(name, metric=metric) or 0.0


def _nonfinite(snapshot: Snapshot, metric: str) -> float:
    return sum(
        value
        for series, value in snapshot.samples.items()
        if series.metric.series == "rl_nonfinite_values_total" and series.labels[0] == metric
    )


def test_every_trainer_generation_is_there() -> None:
    """Four trainers, old and new keys."""
    trainers = {json.loads(path.read_text().splitlines()[0])["trainer"] for path in FILES}

    assert trainers >= {"grpo", "rloo", "ppo", "ppo_legacy"}
    assert len(FILES) >= 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_nothing_is_lost(path: Path) -> None:
    """Each key of each line is a series afterwards, none of them in the fallback; None and NaN are counted."""
    algorithm, lines = _lines(path)
    exporter = Exporter(run=path.stem, algorithm=algorithm)
    resolver = Resolver(CATALOG, algorithm)
    for step, line in lines:
        before = exporter.snapshot
        exporter.log(line, step=step)
        _check(exporter.snapshot, before, resolver, line)

    assert lines
    assert exporter.snapshot.value("rl_step") == lines[-1][0]
    assert exporter.snapshot.value("rlexporter_unmapped_keys") == 0
    assert exporter.snapshot.value("rlexporter_dropped_keys_total") == 0
    assert exporter.snapshot.value("rlexporter_errors_total", where="log") is None
