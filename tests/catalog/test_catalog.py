"""The table: complete, consistent, and named as Prometheus wants it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlexporter.catalog import ALGORITHMS, CATALOG, HYPERPARAMETERS, INFO_LABELS, NAMED, PPO
from rlexporter.model.metric import Kind, Metric, RankScope, Series
from rlexporter.store.keys import Resolver, evaluation

EACH = pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.series)

TRAINERS = {
    "PPO (legacy, step()/log_stats())": "ppo-legacy",
    "PPO (modern, Trainer based)": "ppo",
    "GRPO": "grpo",
    "RLOO": "rloo",
}
NOT_A_NUMBER = {"(PPO modern keys)", "{log_metric name}", "eval_{key}"}


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
    unknown = [(algorithm, key) for algorithm, key in keys if not Resolver(CATALOG, algorithm).resolve(key)]

    assert len(keys) > 110
    assert unknown == []


def test_every_key_lists_the_trainer_that_logs_it(data: Path) -> None:
    """The algorithms of a key are those that log it, so that docs and counters from 0 are complete."""
    for algorithm, key in _logged_keys(data):
        series = Resolver(CATALOG, algorithm).resolve(key)[0]
        template = {k.name for k in series.metric.keys if algorithm in k.algorithms}
        assert template, (algorithm, key, series.metric.series)


@pytest.mark.parametrize(
    ("algorithm", "key", "series"),
    [
        ("ppo-legacy", "objective/kl", "rl_kl_per_sequence"),
        ("ppo", "objective/kl", "rl_kl_per_sequence"),
        ("grpo", "kl", "rl_kl_per_token"),
        ("async-grpo", "kl", "rl_rollout_kl_per_token"),
        ("ppo-legacy", "ppo/mean_non_score_reward", "rl_non_score_reward_per_token"),
        ("ppo", "objective/non_score_reward", "rl_non_score_reward_per_sequence"),
        ("ppo-legacy", "env/reward_mean", "rl_reward_mean"),
        ("ppo-legacy", "ppo/mean_scores", "rl_scores_mean"),
        ("ppo", "val/ratio", "rl_policy_ratio_mean"),
        ("ppo-legacy", "ppo/policy/ratio", "rl_policy_ratio_unmasked_dist"),
        ("ppo-legacy", "objective/kl_dist", "rl_kl_per_sequence_dist"),
        ("ppo", "policy/entropy_avg", "rl_entropy_per_token"),
        ("ppo", "objective/entropy", "rl_entropy_per_sequence"),
        ("grpo", "completions/clipped_ratio", "rl_completion_truncated_fraction"),
        ("grpo", "clip_ratio", "rl_clip_ratio"),
        ("ppo-legacy", "time/ppo/total", "rl_step_time_seconds"),
        ("ppo-legacy", "time/ppo/calc_stats", "rl_phase_time_seconds"),
        ("ppo", "loss/value_avg", "rl_value_loss"),
        ("ppo-legacy", "ppo/loss/value", "rl_value_loss"),
        ("ppo", "lr", "rl_learning_rate"),
    ],
)
def test_keys_share_a_series_only_where_they_mean_the_same(algorithm: str, key: str, series: str) -> None:
    """Sums over a sequence and means over tokens are different series, whatever their keys are called."""
    assert Resolver(CATALOG, algorithm).resolve(key)[0].metric.series == series


@EACH
def test_names_follow_prometheus(metric: Metric) -> None:
    """Lower case, our prefixes, `_total` for counters only, `_info` for infos only, no reserved ending."""
    assert re.fullmatch(r"(rl|rlexporter)_[a-z][a-z0-9_]*[a-z0-9]", metric.series)
    assert "__" not in metric.series
    assert metric.series.endswith("_total") is (metric.kind is Kind.COUNTER)
    assert metric.series.endswith("_info") is (metric.kind is Kind.INFO)
    assert not metric.series.endswith(("_bucket", "_count", "_sum", "_created"))
    assert ("second" in metric.unit and "per second" not in metric.unit) is ("_seconds" in metric.series)


@EACH
def test_entries_are_complete(metric: Metric) -> None:
    """Help is prose, ranges name their source, and what a trainer logs says how to read it or where it stays."""
    assert metric.help[0].isupper() or metric.help.startswith(("rl_", "1"))
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    summary = metric.series.startswith(("rl_train_", "rl_eval_", "rl_steps_", "rl_episodes_per"))
    assert metric.reading or not metric.keys or summary
    assert metric.reading == "" or metric.reading.endswith(".")
    if metric.healthy:
        low, high = metric.healthy.low, metric.healthy.high
        assert metric.healthy.source
        assert low is None or high is None or low <= high
    for key in metric.keys:
        assert set(key.algorithms) <= set(ALGORITHMS)
        assert tuple(re.findall(r"\{(\w+)\}", key.name)) in ((), metric.labels)


@EACH
def test_buckets_are_few_and_ascending(metric: Metric) -> None:
    """At most 24 bounds; histograms have them and nothing else does."""
    assert bool(metric.bounds) is (metric.kind is Kind.HISTOGRAM)
    assert len(metric.bounds) <= 24
    assert list(metric.bounds) == sorted(set(metric.bounds))


@pytest.mark.parametrize("name", ["rl_policy_ratio_dist", "rl_sequence_ratio_dist"])
def test_ratio_buckets_hold_the_limits_of_the_warnings(name: str) -> None:
    """The numbers that the documents warn of can be read off the histogram exactly."""
    assert {0.1, 0.8, 1.0, 1.2, 2.0, 10.0, 200.0} <= set(NAMED[name].bounds) | ({0.8} if "sequence" in name else set())


@EACH
def test_labels_are_few_and_free(metric: Metric) -> None:
    """No label of a metric collides with one that every series carries, or with a reserved one."""
    assert not set(metric.labels) & {"run", "rank", "le", "quantile", "job", "instance"}
    assert len(metric.labels) <= 12
    assert all(len(values) == len(metric.labels) for values in metric.initial)
    Series(metric, tuple("x" for _ in metric.labels))


def test_a_gauge_comes_before_the_histogram_of_the_same_key(data: Path) -> None:
    """An array under such a key is one observation, its mean; under a key of a histogram alone it is many."""
    for algorithm, key in _logged_keys(data):
        kinds = [series.metric.kind for series in Resolver(CATALOG, algorithm).resolve(key)]
        assert kinds in ([Kind.GAUGE], [Kind.HISTOGRAM], [Kind.GAUGE, Kind.HISTOGRAM], [Kind.GAUGE, Kind.COUNTER])


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
