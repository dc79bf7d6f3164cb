"""Catalogue -> grafana/dashboards: five dashboards as Grafana's classic JSON, each for one question."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlexporter.catalog import RUNBOOKS
from rlexporter.generate.dashboards import compare, exporter, fleet, ranks, run
from rlexporter.model.metric import Metric


def dashboards(catalog: Sequence[Metric], runbooks_url: str = RUNBOOKS) -> dict[str, str]:
    """Return every dashboard, by file name; its links to runbooks are to those at ``runbooks_url``."""
    made = [each.build(catalog) for each in (fleet, run, compare, ranks, exporter)]
    texts = {f"{each['uid']}.json": json.dumps(each, indent=2, ensure_ascii=False) + "\n" for each in made}
    return {name: text.replace(RUNBOOKS, runbooks_url) for name, text in texts.items()}
