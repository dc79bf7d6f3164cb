"""Series that are named outside of the catalogue: a page, a tap or a rule must not ask for one that nobody serves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rlexporter.catalog import NAMED, RECORDING_RULES
from rlexporter.model.metric import Kind
from rlexporter.outputs.grouped import SUMS
from tests.tools import ROOT

PACKAGE = ROOT / "rlexporter"
SOURCES = sorted(PACKAGE.rglob("*.py"))

SERIES = re.compile(r"(?<![\w./-])(?:rl|rlexporter)_\w+")
RECORD = re.compile(r"(?<![\w./-])rl:\w+")
PARTS = ("bucket", "count", "sum", "created", *(f"{part}_total" for part in SUMS))
"""What Prometheus appends to the name of a histogram."""
SERVED = (
    set(NAMED)
    | {f"{name}_{part}" for name, metric in NAMED.items() if metric.kind is Kind.HISTOGRAM for part in PARTS}
    | {name.replace("rl_", "rl_eval_", 1) for name, metric in NAMED.items() if metric.kind is Kind.GAUGE}
)


def unknown(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each series, recorded or served, in the strings of a program that nobody serves.

    A name that ends in ``_`` is the beginning of some: of a text that goes on, or with a star behind it.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in SERIES.findall(node.value):
                found = any(each.startswith(name) for each in SERVED) if name.endswith("_") else name in SERVED
                if not found:
                    yield node.lineno, name
            for name in RECORD.findall(node.value):
                if name not in {record.name for record in RECORDING_RULES}:
                    yield node.lineno, name


def test_every_series_that_is_named_is_served() -> None:
    """In code, in PromQL and in prose; a mistake would be an empty panel, or an error where a signal is read."""
    texts = {path: path.read_text() for path in SOURCES}
    assert [(str(path), *found) for path, text in texts.items() for found in unknown(text)] == []
    outside = "".join(text for path, text in texts.items() if path.parent.name != "catalog")
    assert len(SERIES.findall(outside)) > 250, "a test that finds none has lost its way"


def test_a_mistake_in_a_name_is_found() -> None:
    """Also within PromQL, as a part of a histogram, as a prefix, and of what rules record."""
    mistakes = {
        'feed.see("rl_kl_per_tokens", 1.0)': "rl_kl_per_tokens",
        'f"max by (run) (rate(rl_reward_dist_buckets{{{of}}}[5m]))"': "rl_reward_dist_buckets",
        '"rl_loss_bucket"': "rl_loss_bucket",
        '"rlexporter_error_total > 0"': "rlexporter_error_total",
        '"see rl_evaluation_* and rl_eval_*"': "rl_evaluation_",
        '"unless ignoring (state) rl:run_runing"': "rl:run_runing",
        '"rl_eval_reward_mean, rl_eval_reward_men"': "rl_eval_reward_men",
        '"rl_policy_ratio_dist_sum + rl_advantage_dist_positive_sum"': "rl_advantage_dist_positive_sum",
    }
    assert {source: list(unknown(source)) for source in mistakes} == {
        source: [(1, name)] for source, name in mistakes.items()
    }
