"""Selects what a rank other than 0 serves: its own tensors and timings, and nothing that all ranks share. Pure.

TRL's log lines hold values that are reduced over all ranks already, so only rank 0 serves them.
"""

from __future__ import annotations

from dataclasses import replace

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.conditions.table import NONFINITE
from rlexporter.config.settings import TIMINGS
from rlexporter.model.incident import WORDS, worst
from rlexporter.model.metric import Group, RankScope, Series
from rlexporter.model.snapshot import Snapshot

_TIMINGS = {"rlexporter_build_info"} | {
    metric.series
    for metric in CATALOG
    if metric.scope is RankScope.RANK and metric.group in (Group.RUN, Group.PROGRESS, Group.SPEED)
}
_BY_METRIC = ("rl_nonfinite_values_total", "rl_undefined_values_total")
_COUNTED = {metric.of or metric.series for metric in CATALOG if metric.scope is RankScope.RANK}
_VERDICT = Series(NAMED["rl_run_verdict"])
_CONDITIONS = {metric.series for metric in CATALOG if "condition" in metric.labels}


def own(snapshot: Snapshot, ranks: str) -> Snapshot:
    """Return the part of ``snapshot`` that is this rank's own. ``ranks``: `timings`, or `all` for its tensors too."""
    serves = _timing if ranks == TIMINGS else _local
    samples = {series: value for series, value in snapshot.samples.items() if serves(series)}
    judged = () if ranks == TIMINGS else snapshot.incidents
    incidents = tuple(incident for incident in judged if incident.condition in NONFINITE)
    if _VERDICT in samples:
        samples[_VERDICT] = WORDS.index(worst(incidents))
    buckets = {series: counts for series, counts in snapshot.buckets.items() if serves(series)}
    return replace(snapshot, samples=samples, buckets=buckets, incidents=incidents)


def _timing(series: Series) -> bool:
    return series.metric.series in _TIMINGS


def _local(series: Series) -> bool:
    """Return True for a rank's own series; NaN is judged on the rank that sees it, other conditions on rank 0."""
    name = series.metric.series
    if name in _BY_METRIC:
        return series.labels[0] in _COUNTED
    if name in _CONDITIONS:
        return series.labels[0] in NONFINITE
    return series.metric.scope is RankScope.RANK or series == _VERDICT
