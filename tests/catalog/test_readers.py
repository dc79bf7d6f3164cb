"""A metric has a name of its own for a reason; any other key is served as it is logged (`rl_logged_value`).

The reasons: somebody reads it, the documents of the project name its key, it is counted at the tensor, or a NaN of it
is no fault.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlexporter.catalog.as_logged import AS_LOGGED
from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions.from_catalog import SIGNALS, series_of
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.metric import AS_IT_IS, Kind, Metric
from rlexporter.store.keys import Resolver
from tests.tools import ROOT

_NAME = re.compile(r"rl(?:exporter)?_[a-z0-9_]+")
_TABLES = ("_metrics.py", "conditions.py", "as_logged.py")
"""The files of the catalog that declare metrics, or name them in texts only."""


def _words(path: Path) -> set[str]:
    """The names in a file; of Python in its texts, not in its comments."""
    text = path.read_text()
    if path.suffix == ".py":
        nodes = ast.walk(ast.parse(text))
        text = "\n".join(str(node.value) for node in nodes if isinstance(node, ast.Constant))
    return {re.sub("_(bucket|sum|count)$", "", name) for name in _NAME.findall(text)} | {*_NAME.findall(text)}


def _readers() -> Iterator[Path]:
    """What reads series: our own code, panels, rules, and the page."""
    code = ROOT / "rlexporter"
    yield from (
        path
        for path in code.rglob("*.py")
        if code / "frameworks" not in path.parents and not path.name.endswith(_TABLES)
    )
    for folder, pattern in (("scripts/pack", "*.py"), ("grafana", "*.json"), ("grafana", "*.yml")):
        yield from (ROOT / folder).rglob(pattern)
    yield from (ROOT / "alerts").glob("*.yml")
    yield from (code / "status/page").glob("*.js")


def _unread(metrics: Iterable[Metric]) -> list[str]:
    """The names of metrics that nobody reads, and that the documents do not know."""
    read = {name for path in _readers() for name in _words(path)}
    read |= {series for signal in SIGNALS for series in series_of(signal.name)}
    documents = "\n".join(path.read_text() for path in (ROOT / "tests/data/seeds").iterdir())
    return [
        metric.series
        for metric in metrics
        if metric.series not in read
        and metric.kind is not Kind.HISTOGRAM
        and not metric.may_be_nonfinite
        and not any(re.search(rf"(?<![\w/]){re.escape(key.name)}(?![\w/])", documents) for key in metric.keys)
    ]


def test_a_metric_is_read_by_somebody() -> None:
    """By a condition, a panel, a rule, the page or our own code."""
    assert _unread(CATALOG) == []
    assert _unread([replace(CATALOG[0], series="rl_nobody", keys=())]) == ["rl_nobody"]


def test_a_key_that_nothing_reads_feeds_nothing_else() -> None:
    """Those of TRL have no series in any algorithm that logs them, and are known to it."""
    for key in AS_LOGGED:
        for algorithm in key.algorithms:
            name = re.sub(r"\{\w+\}", "x", key.name)
            resolver = Resolver(CATALOG, algorithm)
            assert (name, algorithm, resolver.resolve(name)) == (name, algorithm, ())
            assert resolver.is_as_logged(name), name


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_has_such_keys_once(name: str) -> None:
    """None of them feeds a series as well."""
    keys = FRAMEWORKS[name].keys
    plain = {key.name for key in keys if key.series == AS_IT_IS}
    assert plain & {key.name for key in keys if key.series != AS_IT_IS and not key.families} == set()
