"""Log key -> series."""

from __future__ import annotations

import pytest

from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.keys import MAX_LABEL_LENGTH, Resolver, clip, dataset, evaluation_prefix

Names = list[tuple[str, tuple[str, ...]]]


def _resolve(key: str, prefix: str = "", algorithm: str = "grpo") -> Names:
    found = Resolver(CATALOG, algorithm).resolve(key, prefix)
    return [(series.metric.series, series.labels) for series in found]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("reward", [("rl_reward_mean", ())]),
        ("rewards/accuracy/mean", [("rl_reward_function_mean", ("accuracy",))]),
        ("rewards/accuracy/std", [("rl_reward_function_std", ("accuracy",))]),
        ("rewards/accuracy", [("rl_reward_function_mean", ("accuracy",))]),
        ("grad_norm", [("rl_grad_norm", ()), ("rl_grad_norm_dist", ())]),
        ("num_tokens", [("rl_tokens_seen", ()), ("rl_tokens_total", ())]),
        ("rewards/a/b/c", []),
        ("rewards//mean", []),
        ("my_metric", []),
        ("", []),
    ],
)
def test_keys_of_a_training_line(key: str, expected: Names) -> None:
    """A key feeds every metric that names it; what stands in a template's braces is a label."""
    assert _resolve(key) == expected


def test_a_name_beats_a_template() -> None:
    """DPO's `rewards/chosen` is no reward function that is called chosen."""
    assert _resolve("rewards/chosen", algorithm="dpo") == []


def test_the_algorithm_decides_between_two_meanings() -> None:
    """`kl` of AsyncGRPO is the divergence from the sampler; an unknown algorithm gets the usual meaning."""
    assert _resolve("kl", algorithm="async-grpo") == [("rl_rollout_kl_per_token", ())]
    assert _resolve("kl", algorithm="my-own") == [("rl_kl_per_token", ())]


@pytest.mark.parametrize(
    ("key", "prefix", "expected"),
    [
        ("eval_reward", "eval", [("rl_eval_reward_mean", ("default",))]),
        ("eval_loss", "", [("rl_eval_loss", ("default",))]),
        ("eval_math_loss", "eval_math", [("rl_eval_loss", ("math",))]),
        ("eval_reward", "eval_math", [("rl_eval_reward_mean", ("math",))]),
        ("eval_rewards/f/mean", "eval_math", [("rl_eval_reward_function_mean", ("math", "f"))]),
        ("eval_runtime", "eval", []),
        ("eval_math_runtime", "eval_math", []),
        ("test_loss", "test", [("rl_eval_loss", ("test",))]),
        ("eval_num_tokens", "eval", [("rl_eval_tokens_seen", ("default",))]),
        ("eval_accuracy", "eval", []),
        ("epoch", "eval", []),
        ("eval_eval_runtime", "", []),
    ],
)
def test_keys_of_an_evaluation(key: str, prefix: str, expected: Names) -> None:
    """What an evaluation logs is a gauge of its own, with the data set as a label; it never moves a counter."""
    assert _resolve(key, prefix) == expected


@pytest.mark.parametrize(
    ("keys", "prefix", "name"),
    [
        (["loss", "reward"], "", ""),
        (["eval_loss", "eval_runtime"], "eval", "default"),
        (["eval_math_loss", "eval_math_runtime", "eval_math_samples_per_second"], "eval_math", "math"),
        (["train_runtime", "train_loss", "train_samples_per_second"], "", ""),
        (["test_loss", "test_runtime", "test_samples_per_second"], "test", "test"),
        (["loss", "sandbox_runtime"], "", ""),
        (["sandbox_runtime", "eval_runtime", "eval_loss"], "eval", "default"),
        (["eval_sandbox_runtime", "loss"], "", ""),
    ],
)
def test_evaluations_are_told_from_trainings(keys: list[str], prefix: str, name: str) -> None:
    """By the run time that transformers adds to each evaluation."""
    assert evaluation_prefix(tuple(keys)) == prefix
    if prefix:
        assert dataset(prefix) == name


def test_label_values_are_cut() -> None:
    """A name from outside cannot be of any length."""
    ((_, labels),) = _resolve(f"rewards/{'x' * 500}/mean")

    assert len(labels[0]) == MAX_LABEL_LENGTH
    assert clip("short") == "short"


def test_names_that_begin_alike_stay_two() -> None:
    """However long they are; the same name is cut in the same way each time."""
    long = "train/model.layers.0.self_attn.q_proj." * 10
    cut = {clip(f"{long}{end}") for end in ("a", "b", "\ud800", "\ud801", "é")}

    assert len(cut) == 5
    assert {len(each) for each in cut} == {MAX_LABEL_LENGTH}
    assert all(each.startswith(long[:100]) for each in cut)
    assert clip(f"{long}a") == clip(f"{long}a")
    assert clip("x" * MAX_LABEL_LENGTH) == "x" * MAX_LABEL_LENGTH
