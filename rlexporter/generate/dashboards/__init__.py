"""Catalogue -> grafana/dashboards: four dashboards as Grafana's classic JSON, each for one question."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlexporter.generate.dashboards import exporter, fleet, ranks, run
from rlexporter.model.metric import Metric


def dashboards(catalog: Sequence[Metric]) -> dict[str, str]:
    """Return every dashboard, by file name."""
    made = (fleet.build(catalog), run.build(catalog), ranks.build(catalog), exporter.build(catalog))
    return {f"{each['uid']}.json": json.dumps(each, indent=2, ensure_ascii=False) + "\n" for each in made}
