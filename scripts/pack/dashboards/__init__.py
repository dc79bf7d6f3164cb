"""Catalog -> grafana/dashboards: dashboards as Grafana's classic JSON, each for one question."""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.model.metric import Metric
from scripts.pack.dashboards import compare, exporter, fleet, ranks, run
from scripts.pack.dashboards.defaults import without_defaults
from scripts.pack.dashboards.text import written


def dashboards(catalog: Sequence[Metric]) -> dict[str, str]:
    """Return every dashboard, by file name."""
    made = (fleet.build(catalog), *run.build(), compare.build(catalog), ranks.build(catalog), exporter.build(catalog))
    return {f"{each['uid']}.json": written(each) for each in map(without_defaults, made)}
