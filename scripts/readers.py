"""Who reads a metric: the conditions, panels, rules, the page and our own code, or the documents that name its key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlexporter.conditions.table import SIGNALS, series_of
from rlexporter.model.metric import Kind, Metric

ROOT = Path(__file__).parent.parent
_NAME = re.compile(r"rl(?:exporter)?_[a-z0-9_]+")
_TABLES = ("_metrics.py", "as_logged.py")
"""The files of the catalog that declare metrics, or name them in texts only."""


def readers(metrics: Iterable[Metric]) -> dict[str, list[str]]:
    """Return for each of ``metrics`` the names of its readers, below the root of the repository; sorted."""
    files = {path.relative_to(ROOT).as_posix(): _words(path) for path in _files()}
    judged = {signal.name: series_of(signal.name) for signal in SIGNALS}
    documents = "\n".join(path.read_text() for path in (ROOT / "tests/data/seeds").iterdir())
    found = {}
    for metric in metrics:
        who = [path for path, words in files.items() if metric.series in words]
        who += [f"signal {signal}" for signal, names in judged.items() if metric.series in names]
        who += ["counted at the tensor"] if metric.kind is Kind.HISTOGRAM else []
        who += ["its NaN is no fault"] if metric.may_be_nonfinite else []
        who += [
            f"key {key.name}"
            for key in metric.keys
            if re.search(rf"(?<![\w/]){re.escape(key.name)}(?![\w/])", documents)
        ]
        found[metric.series] = sorted(set(who))
    return found


def _files() -> Iterator[Path]:
    code = ROOT / "rlexporter"
    tables = (code / "frameworks", code / "catalog")
    yield from (
        path
        for path in code.rglob("*.py")
        if tables[0] not in path.parents and not (tables[1] in path.parents and path.name.endswith(_TABLES))
    )
    for folder, pattern in (("scripts/pack", "*.py"), ("grafana", "*.json"), ("grafana", "*.yml")):
        yield from (ROOT / folder).rglob(pattern)
    yield from (ROOT / "alerts").glob("*.yml")
    yield from (code / "status/page").glob("*.js")


def _words(path: Path) -> set[str]:
    """Return the names in a file; of Python those in its texts, but not what a condition only shows beside itself."""
    text = path.read_text()
    if path.suffix == ".py":
        nodes = list(ast.walk(ast.parse(text)))
        beside = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "related"]
        left_out = {id(node) for each in beside for node in ast.walk(each)}
        texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in left_out)
        text = "\n".join(str(node.value) for node in texts)
    names = set(_NAME.findall(text))
    return names | {re.sub("_(bucket|sum|count)$", "", name) for name in names}
