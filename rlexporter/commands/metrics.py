"""`rlexporter metrics`: lists the metrics of the catalogue."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.from_catalog import alerts_on
from rlexporter.model.metric import Metric


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    metrics = commands.add_parser("metrics", help="list what is served")
    metrics.add_argument("--json", action="store_true", help="as JSON")
    metrics.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the catalogue; return the exit status."""
    if options.json:
        print(json.dumps([_described(metric) for metric in CATALOG], indent=1))
        return 0
    width = max(len(metric.series) for metric in CATALOG)
    for metric in CATALOG:
        print(f"{metric.series:{width}}  {metric.kind.value:9}  {metric.help}")
    return 0


def _described(metric: Metric) -> dict[str, Any]:
    healthy = metric.healthy
    return {
        "series": metric.series,
        "kind": metric.kind.value,
        "unit": metric.unit,
        "level": metric.level.value,
        "scope": metric.scope.value,
        "keys": list(dict.fromkeys(key.name for key in metric.keys)),
        "labels": list(metric.labels),
        "healthy": [healthy.low, healthy.high] if healthy else None,
        "help": metric.help,
        "reading": metric.reading,
        "alerts": alerts_on(metric),
    }
