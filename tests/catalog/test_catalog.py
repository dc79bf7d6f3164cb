"""The table: complete, consistent, and named as Prometheus wants it; no series is named that nobody serves."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

from rlexporter.catalog.algorithms import ALGORITHMS, PPO
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.catalog.run_metrics import HYPERPARAMETERS, INFO_LABELS
from rlexporter.feed.keys import Resolver, evaluation
from rlexporter.model.metric import AS_IT_IS, Kind, Metric, RankScope, Series
from rlexporter.outputs.prometheus import SUMS
from scripts.pack.recording_rules import RECORDING_RULES
from tests.tools import ROOT

_LEANING = re.compile(
    r"\bsuch (?!as\b)|\bthat (factor|ratio|share|weight|difference)\b|\bthe same (weights|two times)\b|^The same\b"
)

TRAINERS = {
    "PPO (legacy, step()/log_stats())": "ppo-legacy",
    "PPO (modern, Trainer based)": "ppo",
    "GRPO": "grpo",
    "RLOO": "rloo",
}
NOT_A_NUMBER = {"(PPO modern keys)", "{log_metric name}", "eval_{key}"}


NO_READING = ("rl_train_", "rl_eval_", "rl_steps_", "rl_episodes_per")
TAKEN = {"run", "rank", "le", "quantile", "job", "instance"}
RULES: dict[str, Callable[[Metric], object]] = {
    "a name is in lower case and has our prefix": lambda metric: re.fullmatch(
        r"(rl|rlexporter)_[a-z]([a-z0-9]|_(?!_))*[a-z0-9]", metric.series
    ),
    "counters alone are totals": lambda metric: metric.series.endswith("_total") is (metric.kind is Kind.COUNTER),
    "infos alone are infos": lambda metric: metric.series.endswith("_info") is (metric.kind is Kind.INFO),
    "endings are free": lambda metric: not metric.series.endswith(("_bucket", "_count", "_sum", "_created")),
    "seconds are in the name": lambda metric: (
        ("second" in metric.unit and "per second" not in metric.unit) is ("_seconds" in metric.series)
    ),
    "help stands alone, whatever is before it": lambda metric: not _LEANING.search(metric.help),
    "help is one line of prose": lambda metric: re.fullmatch(r"([A-Z]|rl_|1).*\.", metric.help),
    "what a trainer logs says how to read it": lambda metric: (
        metric.reading or not metric.keys or metric.series.startswith(NO_READING)
    ),
    "a reading is prose": lambda metric: metric.reading == "" or metric.reading.endswith("."),
    "a range names its source": lambda metric: not metric.healthy or metric.healthy.source,
    "a range ascends": lambda metric: (
        not metric.healthy
        or None in (metric.healthy.low, metric.healthy.high)
        or (metric.healthy.low or 0) <= (metric.healthy.high or 0)
    ),
    "algorithms are known": lambda metric: all(set(key.algorithms) <= set(ALGORITHMS) for key in metric.keys),
    "fields of a key are the labels": lambda metric: (
        metric.series == AS_IT_IS
        or {tuple(re.findall(r"\{(\w+)\}", key.name)) for key in metric.keys} <= {(), metric.labels}
    ),
    "histograms alone have buckets": lambda metric: bool(metric.bounds) is (metric.kind is Kind.HISTOGRAM),
    "buckets are few and ascend": lambda metric: list(metric.bounds) == sorted(set(metric.bounds))[:24],
    "labels are few and free": lambda metric: len(set(metric.labels) - TAKEN) == len(metric.labels) <= 12,
    "labels are those of a series": lambda metric: Series(metric, tuple("x" for _ in metric.labels)),
    "initial values fit the labels": lambda metric: {len(values) for values in metric.initial} <= {len(metric.labels)},
}

PACKAGE = ROOT / "rlexporter"

NAME = re.compile(r"(?<![\w./-])(?:rl_|rlexporter_|rl:)\w+")
PARTS = ("bucket", "count", "sum", "created", *(f"{part}_total" for part in SUMS))
"""What Prometheus appends to the name of a histogram."""
SERVED = (
    set(NAMED)
    | {f"{name}_{part}" for name, metric in NAMED.items() if metric.kind is Kind.HISTOGRAM for part in PARTS}
    | {name.replace("rl_", "rl_eval_", 1) for name, metric in NAMED.items() if metric.kind is Kind.GAUGE}
)


KNOWN = SERVED | {record.name for record in RECORDING_RULES}


def _logged_keys(data: Path) -> list[tuple[str, str]]:
    rows = json.loads((data / "trl_catalog.json").read_text())
    return [
        (TRAINERS[row["trainer"]], re.sub(r"\{reward_func(_name)?\}", "length_reward", row["key"]))
        for row in rows
        if row["trainer"] in TRAINERS and row["key"] not in NOT_A_NUMBER
    ]


def test_names_are_unique() -> None:
    """No two metrics, and no derived evaluation metric, share a Prometheus name."""
    gauges = [metric for metric in CATALOG if metric.kind is Kind.GAUGE and metric.keys]
    names = [metric.series for metric in (*CATALOG, *map(evaluation, gauges))]

    assert len(names) == len(set(names)) == len(CATALOG) + len(gauges)
    assert set(NAMED) == {metric.series for metric in CATALOG}


def test_every_key_of_the_four_trainers_is_known(data: Path) -> None:
    """No key that legacy PPO, modern PPO, GRPO or RLOO logs ends in the fallback."""
    keys = _logged_keys(data)

    assert len(keys) > 110
    assert [(algorithm, key) for algorithm, key in keys if not Resolver(CATALOG, algorithm).knows(key)] == []


def test_every_key_lists_the_trainer_that_logs_it(data: Path) -> None:
    """The algorithms of a key are those that log it, so that docs and counters from 0 are complete."""
    found = [(algorithm, Resolver(CATALOG, algorithm).resolve(key)) for algorithm, key in _logged_keys(data)]
    first = [(algorithm, series[0].metric) for algorithm, series in found if series]

    assert [
        (algorithm, metric.series)
        for algorithm, metric in first
        if not any(algorithm in key.algorithms for key in metric.keys)
    ] == []


def test_keys_share_a_series_only_where_they_mean_the_same() -> None:
    """Sums over a sequence and means over tokens are different series, whatever their keys are called."""
    served = {
        ("ppo-legacy", "objective/kl"): "rl_kl_per_sequence",
        ("ppo", "objective/kl"): "rl_kl_per_sequence",
        ("grpo", "kl"): "rl_kl_per_token",
        ("async-grpo", "kl"): "rl_rollout_kl_per_token",
        ("ppo-legacy", "ppo/mean_non_score_reward"): "rl_non_score_reward_per_token",
        ("ppo", "objective/non_score_reward"): "rl_non_score_reward_per_sequence",
        ("ppo-legacy", "env/reward_mean"): "rl_reward_mean",
        ("ppo-legacy", "ppo/mean_scores"): "rl_scores_mean",
        ("ppo", "val/ratio"): "rl_policy_ratio_mean",
        ("ppo-legacy", "ppo/policy/ratio"): "rl_policy_ratio_unmasked_dist",
        ("ppo-legacy", "objective/kl_dist"): "rl_kl_per_sequence_dist",
        ("ppo", "policy/entropy_avg"): "rl_entropy_per_token",
        ("ppo", "objective/entropy"): "rl_entropy_per_sequence",
        ("grpo", "completions/clipped_ratio"): "rl_completion_truncated_fraction",
        ("grpo", "clip_ratio"): "rl_clip_ratio",
        ("ppo-legacy", "time/ppo/total"): "rl_step_time_seconds",
        ("ppo-legacy", "time/ppo/calc_stats"): "rl_phase_time_seconds",
        ("ppo", "loss/value_avg"): "rl_value_loss",
        ("ppo-legacy", "ppo/loss/value"): "rl_value_loss",
        ("ppo", "lr"): "rl_learning_rate",
    }

    assert {
        (algorithm, key): Resolver(CATALOG, algorithm).resolve(key)[0].metric.series for algorithm, key in served
    } == served


def test_every_metric_follows_every_rule() -> None:
    """Their names, texts, ranges, keys, buckets and labels: what breaks which rule."""
    assert [(rule, metric.series) for rule, holds in RULES.items() for metric in CATALOG if not holds(metric)] == []


def test_ratio_buckets_hold_the_limits_of_the_warnings() -> None:
    """The numbers that the documents warn of can be read off the histogram exactly."""
    for name in ("rl_policy_ratio_dist", "rl_sequence_ratio_dist"):
        missing = {0.1, 0.8, 1.0, 1.2, 2.0, 10.0, 200.0} - set(NAMED[name].bounds)
        assert missing <= ({0.8} if "sequence" in name else set()), name


def test_a_gauge_comes_before_the_histogram_of_the_same_key(data: Path) -> None:
    """An array under such a key is one observation, its mean; under a key of a histogram alone it is many."""
    found = {
        tuple(series.metric.kind for series in Resolver(CATALOG, algorithm).resolve(key))
        for algorithm, key in _logged_keys(data)
    }
    assert found - {()} == {(Kind.GAUGE,), (Kind.HISTOGRAM,), (Kind.GAUGE, Kind.HISTOGRAM), (Kind.GAUGE, Kind.COUNTER)}


def test_the_info_has_at_most_twelve_labels() -> None:
    """What describes a run stays joinable."""
    assert len(INFO_LABELS) <= 12
    assert len(HYPERPARAMETERS) == len(set(HYPERPARAMETERS))


def test_what_one_rank_measures_is_marked() -> None:
    """The values that TRL does not reduce over ranks are known as such."""
    local = {metric.series for metric in CATALOG if metric.scope is RankScope.RANK}

    assert {"rl_eos_tokens", "rl_step_time_seconds", "rl_step_duration_seconds"} <= local
    assert "rl_reward_mean" not in local


def test_what_modern_ppo_takes_too_small_is_marked() -> None:
    """The seven means over slots of its statistics, some of which it leaves unwritten: by the key that it logs."""
    marked = {key.name for metric in CATALOG if metric.corrected for key in metric.keys if PPO in key.algorithms}

    assert marked == {
        *("policy/approxkl_avg", "policy/clipfrac_avg", "policy/entropy_avg", "loss/policy_avg", "loss/value_avg"),
        *("val/clipfrac_avg", "val/ratio"),
    }


def test_a_histogram_of_one_value_a_step_has_the_keys_of_its_gauge() -> None:
    """A key that only one of the two has would leave the other behind."""
    twins = [metric for metric in CATALOG if metric.of and NAMED[metric.of].kind is Kind.GAUGE]

    assert len(twins) == 5
    assert all(metric.keys == NAMED[metric.of].keys for metric in twins)


def unknown(name: str) -> bool:
    """Whether nobody serves it; one that ends in ``_`` goes on, or stands for all that begin so."""
    return not any(each.startswith(name) for each in KNOWN) if name.endswith("_") else name not in KNOWN


def test_every_series_that_is_named_is_served() -> None:
    """In code, in PromQL and in prose; a mistake would be an empty panel, or an error where a signal is read."""
    named = [
        (str(path.relative_to(PACKAGE)), node.lineno, name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in NAME.findall(node.value)
    ]
    assert [each for each in named if unknown(each[2])] == []
    assert len([file for file, *_ in named if not file.startswith("catalog/")]) > 250, "who finds none has lost its way"
