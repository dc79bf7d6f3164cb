"""`rlexporter metrics`: lists what is served, by a word of its name, key or help."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.conditions.table import alerts_on
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.metric import AS_IT_IS, Kind, Metric
from rlexporter.terminal import shown


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.add_argument(
        "word", nargs="?", default="", metavar="WORD", help="list only what has this word in its name, key or help"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print the catalog, or what matches a word of it; 1 if nothing does."""
    word = options.word.lower()
    found = [metric for metric in CATALOG if word in _searched(metric)]
    as_logged = sorted({key for key in _keys(NAMED[AS_IT_IS]) if word in key.lower()}) if word else []
    if not found and not as_logged:
        print(
            f"rlexporter: no metric has {shown(options.word)!r} in its name, key or help; a key that is not known is "
            f"served as {AS_IT_IS}{{key=...}}",
            file=sys.stderr,
        )
        return 1
    if options.json:
        plain = _described(NAMED[AS_IT_IS])
        both = [*map(_described, found), *({**plain, "keys": [key]} for key in as_logged)]
        print(json.dumps(both, indent=1))
        return 0
    width = max((len(metric.series) for metric in found), default=0)
    for metric in found:
        print(f"{metric.series:{width}}  {metric.kind.value:9}  {metric.help}")
    for key in as_logged:
        print(f'{AS_IT_IS}{{key="{key}"}}  {Kind.GAUGE.value}  Served as it is logged.')
    return 0


def _keys(metric: Metric) -> Iterator[str]:
    """Yield the keys, of TRL and of all frameworks, that feed a metric."""
    yield from (key.name for key in metric.keys)
    for framework in FRAMEWORKS.values():
        yield from (key.name for key in framework.keys if key.series == metric.series)


def _searched(metric: Metric) -> str:
    """Return the name, the help and the keys of a metric, those of all frameworks too, in small letters."""
    keys = _keys(metric) if metric.series != AS_IT_IS else ()  # those are listed one by one
    return "\n".join((metric.series, metric.help, *keys)).lower()


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
