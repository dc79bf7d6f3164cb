"""The text that is served: golden, by the official parsers, within its budget, and as promtool wants it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.feed import Feed
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.outputs.prometheus import encode
from tests.conftest import observe
from tests.tools import GENERATIONS, promtool_lint, require_tools

TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ALGORITHMS = ("grpo", "rloo", "ppo", "ppo-legacy", "custom")


def golden_store() -> Feed:
    """A fixed sequence of log lines of every kind."""
    feed = Feed(CATALOG, clock=lambda: 1_700_000_000.0)
    feed._record_seconds = 0.0
    facts = RunFacts(
        algorithm="grpo",
        info={"trainer": "GRPOTrainer", "model": 'a "quoted" \\ name\nwith a break', "attempt": "1"},
        hyperparameters={"beta": 0.04, "num_generations": 8},
        steps_planned=100,
        step=0,
        totals={"num_tokens": 0},
    )
    feed.begin(facts, {"run": "golden", "rank": "0", "team": "llm"})
    feed.enter(RunState.RUNNING)
    lines: list[dict[str, object]] = [
        {"loss": 0.01, "grad_norm": 0.5, "reward": 1.25, "kl": 0.02, "num_tokens": 640, "rewards/length/mean": -0.25},
        {"loss": -0.5, "grad_norm": math.nan, "reward": None, "kl": math.inf, "mine/score": 3, "note": "text"},
        {"eval_loss": 0.2, "eval_reward": 1.5, "eval_runtime": 2.5, "epoch": 0.5},
    ]
    for step, line in enumerate(lines, 1):
        feed.record(line, min(step, 2), None if step == 3 else StepUpdate(step=step, duration=0.75))
    observe(feed, feed.histogram("reward", {}), [-0.3, 0.0, 0.3, 1.0, math.nan])
    observe(feed, feed.histogram("policy_ratio", {}), [0.8, 1.0, 1.2, 250.0])
    feed.saved(2)
    feed.change(lambda builder: builder.set("rlexporter_record_seconds_total", 0.001))
    feed.change(lambda builder: builder.set("rlexporter_observe_seconds_total", 0.002))
    return feed


def full_store(algorithm: str) -> Feed:
    """A feed in which everything that an algorithm can log was logged, and every histogram observed."""
    feed = Feed(CATALOG)
    feed.begin(RunFacts(algorithm=algorithm, step=0), {"run": "full", "rank": "0"})
    keys = dict.fromkeys(key.name for metric in CATALOG for key in metric.keys if algorithm in key.algorithms)
    functions = [key.replace("{reward_function}", f"f{i}") for key in keys for i in range(8)]
    phases = [key.replace("{phase}", f"p{i}") for key in keys for i in range(6)]
    line = {key: 0.5 for key in (*functions, *phases) if "{" not in key and key[:5] != "eval_"}
    feed.record(line, step=1, update=StepUpdate(step=1, duration=1.0))
    feed.record({f"eval_{key}": 0.5 for key in line} | {"eval_runtime": 1.0}, step=1)
    for metric in CATALOG:
        for i in range(8 if metric.labels else 1):
            if metric.kind is Kind.HISTOGRAM:
                observe(feed, Series(metric, (f"f{i}",) * len(metric.labels)), [0.5])
    return feed


@pytest.mark.parametrize(("accept", "name"), [(TEXT, "scrape.txt"), (OPENMETRICS, "scrape.om.txt")])
def test_golden(data: Path, accept: str, name: str) -> None:
    """The whole answer, as committed. `make golden` writes it anew: read the difference."""
    body, _ = encode(golden_store().snapshot, accept)

    assert body.decode() == (data / "golden" / name).read_text()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_promtool_has_no_complaint(generation: str) -> None:
    """`promtool check metrics` on everything that can be served."""
    tools = require_tools(generation)
    said = {each: promtool_lint(tools, encode(full_store(each).snapshot, TEXT)[0].decode()) for each in ALGORITHMS}

    assert said == dict.fromkeys(ALGORITHMS, "")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_both_formats_parse_and_say_the_same(algorithm: str) -> None:
    """The official parsers read every sample.

    There are at most 1,000 for rank 0, with eight reward functions and an evaluation, everything logged and observed.
    """
    snapshot = full_store(algorithm).snapshot
    served = [encode(snapshot, accept)[0].decode() for accept in (TEXT, OPENMETRICS)]
    families = parse_text(served[0]), parse_openmetrics(served[1])  # type: ignore[no-untyped-call]
    text, openmetrics = (
        {
            (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
            for each in found
            for sample in each.samples
        }
        for found in families
    )

    signed = {f"{series.metric.series}_count" for series in snapshot.buckets if series.metric.signed}
    counts = {key: text.pop(key) for key in [*text] if key[0] in signed}
    assert text == openmetrics
    assert len(snapshot.samples) < len(text)
    assert {name for name, _ in counts} == signed
    every = {
        (name.replace("_bucket", "_count"), labels.replace('"le": "+Inf", ', "")): value
        for (name, labels), value in text.items()
        if '"le": "+Inf"' in labels
    }
    assert counts.items() <= every.items()
    assert (
        300
        < len(text) + len(counts)
        == len([line for line in served[0].splitlines() if not line.startswith("#")])
        <= 1000
    )


def test_bounds_are_written_as_go_does() -> None:
    """Prometheus 2 keeps the text of `le`, 3 normalizes it: only one form means the same to both."""
    body, _ = encode(full_store("grpo").snapshot, TEXT)

    bounds = {line.partition('le="')[2].partition('"')[0] for line in body.decode().splitlines() if 'le="' in line}
    assert {"-1.0", "0.0", "1.0", "0.0001", "1e+06", "200.0", "+Inf"} <= bounds
    assert not {bound for bound in bounds if "." not in bound and "e" not in bound} - {"+Inf"}


def test_only_what_was_asked_for() -> None:
    """`name[]` names a family or a single series."""
    body, _ = encode(golden_store().snapshot, TEXT, ["rl_step", "rl_policy_ratio_dist", "rl_steps_total"])
    names = {line.partition("{")[0] for line in body.decode().splitlines() if not line.startswith("#")}

    assert names == {
        "rl_step",
        "rl_steps_total",
        "rl_policy_ratio_dist_bucket",
        "rl_policy_ratio_dist_count",
        "rl_policy_ratio_dist_sum",
    }


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version="),
        ("application/vnd.google.protobuf;proto=x;q=0.9,text/plain;version=0.0.4", "text/plain; version=0.0.4"),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, content_type: str) -> None:
    """Prometheus 3 refuses an answer without a type that it knows."""
    body, found = encode(golden_store().snapshot, accept)

    assert found.startswith(content_type)
    assert body.endswith(b"# EOF\n") is ("openmetrics" in found)
