"""Catalogue -> grafana/dashboards: dashboards as Grafana's classic JSON, each for one question."""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog import RUNBOOKS
from rlexporter.generate.dashboards import compare, exporter, fleet, ranks, run
from rlexporter.generate.dashboards.defaults import without_defaults
from rlexporter.generate.dashboards.text import written
from rlexporter.model.metric import Metric


def dashboards(catalog: Sequence[Metric], runbooks_url: str = RUNBOOKS) -> dict[str, str]:
    """Return every dashboard, by file name; its links to runbooks are to those at ``runbooks_url``."""
    made = (fleet.build(catalog), *run.build(), compare.build(catalog), ranks.build(catalog), exporter.build(catalog))
    texts = {f"{each['uid']}.json": written(each) for each in map(without_defaults, made)}
    return {name: text.replace(RUNBOOKS, runbooks_url) for name, text in texts.items()}
