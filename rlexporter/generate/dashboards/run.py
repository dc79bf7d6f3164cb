"""Dashboard of a run of any algorithm, from top to bottom: overview, learning, stability, speed, hidden values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards import everything, overview, pace, variables
from rlexporter.generate.dashboards.by_step import by_step
from rlexporter.generate.dashboards.frame import Json, Page, dashboard, select
from rlexporter.generate.dashboards.panels import (
    Query,
    capital,
    described,
    gauge,
    heatmap,
    mean,
    missing,
    timeseries,
    words,
)
from rlexporter.model.metric import Kind, Metric

UID = "rlexporter-run"

Panels = tuple[tuple[str, tuple[str, ...]], ...]

LEARNING: Panels = (
    ("Reward per function", ("rl_reward_function_mean",)),
    ("Reward in evaluation", ("rl_eval_reward_mean",)),
    ("Groups without spread of reward", ("rl_reward_zero_std_fraction",)),
    ("Spread of reward", ("rl_reward_std", "rl_scores_std")),
)
STABLE: Panels = (
    ("KL to the reference, per token", ("rl_kl_per_token",)),
    ("Probability ratio, mean", ("rl_policy_ratio_mean",)),
    (
        "Clipped",
        ("rl_clip_ratio_region_mean", "rl_clip_ratio_low_mean", "rl_clip_ratio_high_mean", "rl_policy_clipfrac"),
    ),
    ("Entropy, per token", ("rl_entropy_per_token",)),
    ("Gradient norm", ("rl_grad_norm",)),
    ("Losses", ("rl_loss", "rl_policy_loss", "rl_total_loss")),
    ("Advantage, mean", ("rl_advantage_mean",)),
    ("Learning rate", ("rl_learning_rate",)),
)
ONLY_PPO: Panels = (
    ("KL to the reference, per sequence", ("rl_kl_per_sequence",)),
    ("Approximate KL of an update", ("rl_policy_approxkl", "rl_policy_policykl")),
    ("KL coefficient", ("rl_kl_coef",)),
    ("What PPO maximises", ("rl_rlhf_reward", "rl_scores_mean", "rl_non_score_reward_per_sequence")),
    ("Value loss", ("rl_value_loss", "rl_value_error")),
    ("Explained variance", ("rl_value_explained_variance",)),
    ("Values clipped", ("rl_value_clipfrac",)),
    ("Values and returns, mean", ("rl_value_mean", "rl_return_mean")),
)
COMPLETIONS: Panels = (
    ("Completion length", ("rl_completion_length_mean", "rl_completion_length_min", "rl_completion_length_max")),
    ("Truncated", ("rl_completion_truncated_fraction",)),
    ("End tokens", ("rl_eos_tokens", "rl_eos_fraction")),
)
MISMATCH: Panels = (
    (
        "Log-probability, trainer against sampler",
        ("rl_sampling_logp_difference_mean", "rl_sampling_logp_difference_max"),
    ),
    (
        "Importance sampling ratio",
        ("rl_importance_sampling_ratio_mean", "rl_importance_sampling_ratio_min", "rl_importance_sampling_ratio_max"),
    ),
)
SEEN = {
    "rl_kl_per_token": "rl_kl_per_token_dist",
    "rl_policy_ratio_mean": "rl_policy_ratio_dist",
    "rl_entropy_per_token": "rl_entropy_per_token_dist",
    "rl_advantage_mean": "rl_advantage_dist",
}
"""Histograms of tensors by the gauge that they stand in for where the trainer does not log it."""
ABSENT = {
    "rl_kl_per_token": "Not in this run. PPO logs it per sequence; with beta=0 there is none",
    "rl_policy_ratio_mean": "Neither logged nor seen at the tensor: an update on fresh samples has a ratio of 1",
    "rl_advantage_mean": "Neither logged nor seen at the tensor",
    "rl_sampling_logp_difference_mean": "Only with a sampler of its own: use_vllm",
    "rl_importance_sampling_ratio_mean": "Only with a sampler of its own: use_vllm",
    "rl_eval_reward_mean": "No evaluation yet",
}
_LOG = {"rl_grad_norm", "rl_value_loss", "rl_policy_approxkl"}
_OF_SOME = {
    "rl_kl_per_sequence_dist": "Only where KL is of sequences: legacy PPO",
    "rl_sequence_ratio_dist": "Only where ratios are of sequences: RLOO, GSPO",
    "rl_value_dist": "Only with a value function: PPO",
    "rl_return_dist": "Only with a value function: PPO",
}
_NOT_TENSORS = {"rl_step_duration_seconds", "rl_reward_function_dist"}


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    overview.build(page)
    page.row("Is it learning?")
    page.add(lines(*LEARNING[0]), 12)
    page.add(by_step("Reward over the step", ("rl_reward_mean", "rl_reward_dist")), 12)
    for title, names in LEARNING[1:]:
        page.add(lines(title, names))
    page.row("Is it stable?")
    for title, names in STABLE:
        page.add(lines(title, names), 6)
    page.row("Is it stable? What only PPO logs")
    for title, names in ONLY_PPO:
        page.add(lines(title, names), 6, 6)
    page.row("Distributions, seen at the tensor")
    for metric in distributions(catalog):
        page.add(heatmap(capital(words(metric.series)), metric, absent=_OF_SOME.get(metric.series, "")), 6, 7)
    page.add(_function_heatmap(), 24)
    page.row("Completions")
    for title, names in COMPLETIONS:
        page.add(lines(title, names))
    page.row("Sampler and trainer (vLLM)")
    for title, names in MISMATCH:
        page.add(lines(title, names), 12, 6)
    pace.speed(page)
    pace.truth(page)
    everything.rest(page, catalog)
    return dashboard(
        UID,
        "RL training: run",
        "One run: state and alerts, reward, stability, distributions, completions, speed, and what was hidden.",
        page.panels,
        variables=variables.common(variables.run(), variables.reward_function(), variables.window()),
    )


def lines(title: str, names: Sequence[str]) -> Json:
    """Return a panel with the lines of the gauges ``names``; labels tell lines of one gauge apart."""
    metrics = [_named(name) for name in names]
    ranges = {each.healthy for each in metrics}
    # Of lines with ranges of their own none can be drawn.
    shown = metrics[0] if len(ranges) == 1 else replace(metrics[0], healthy=None)
    texts = (f"{capital(words(name))}: {described(each)}" for name, each in zip(names, metrics, strict=True))
    return timeseries(
        title,
        [*map(_line, names), *_besides(names)],
        shown,
        log=names[0] in _LOG,
        window=names[0] in SEEN,
        absent=ABSENT.get(names[0]) or missing(*metrics),
        description="\n\n".join(texts) if len(names) > 1 else "",
    )


def _named(name: str) -> Metric:
    return NAMED.get(name) or NAMED[name.replace("rl_eval_", "rl_")]


def _line(name: str) -> Query:
    return gauge(name, "dataset") if name not in NAMED else gauge(name, *NAMED[name].labels)


def _besides(names: Sequence[str]) -> Iterator[Query]:
    """Yield queries beside those of ``names``: values corrected for a trainer's mistake, or seen at the tensor."""
    for name in names:
        if name in NAMED and NAMED[name].corrected:
            of = select('rank="0"', f'metric="{name}"')
            yield Query(f"max by (run) (rl_corrected_mean{{{of}}})", f"{words(name)}, corrected")
        if name in SEEN:
            yield Query(mean(NAMED[SEEN[name]], select()), "seen at the tensor")


def distributions(catalog: Sequence[Metric]) -> list[Metric]:
    """Return the histograms of tensors that no other panel shows better; those of few algorithms come last."""
    found = [
        each for each in catalog if each.kind is Kind.HISTOGRAM and not each.of and each.series not in _NOT_TENSORS
    ]
    return sorted(found, key=lambda metric: metric.series in _OF_SOME)


def _function_heatmap() -> Json:
    panel = heatmap(
        "Reward of $reward_function", NAMED["rl_reward_function_dist"], 'reward_function=~"$reward_function"'
    )
    panel.update(repeat="reward_function", repeatDirection="h", maxPerRow=4)
    return panel
