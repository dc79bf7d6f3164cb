"""One run, for any algorithm, from top to bottom: how is it, is it learning, is it stable, is it fast, is it true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards import state
from rlexporter.generate.dashboards.frame import Json, Page, dashboard, run_variable, select, variable, window_variable
from rlexporter.generate.dashboards.panels import Query, gauge, heatmap, timeseries, unit
from rlexporter.model import Group, Kind, Metric

UID = "rlexporter-run"

Panels = tuple[tuple[str, tuple[str, ...]], ...]

LEARNING: Panels = (
    ("Reward per function", ("rl_reward_function_mean",)),
    ("Groups without spread of reward", ("rl_reward_zero_std_fraction",)),
    ("Reward in evaluation", ("rl_eval_reward_mean",)),
    ("What PPO maximises", ("rl_rlhf_reward", "rl_scores_mean", "rl_non_score_reward_per_sequence")),
)
STABLE: Panels = (
    ("KL to the reference, per token", ("rl_kl_per_token",)),
    ("KL to the reference, per sequence", ("rl_kl_per_sequence",)),
    ("Entropy", ("rl_entropy_per_token",)),
    ("Probability ratio, mean", ("rl_policy_ratio_mean",)),
    ("Approximate KL of an update", ("rl_policy_approxkl", "rl_policy_policykl")),
    (
        "Clipped",
        ("rl_clip_ratio_region_mean", "rl_clip_ratio_low_mean", "rl_clip_ratio_high_mean", "rl_policy_clipfrac"),
    ),
    ("Gradient norm", ("rl_grad_norm",)),
    ("Losses", ("rl_loss", "rl_policy_loss", "rl_total_loss")),
    ("Learning rate", ("rl_learning_rate",)),
    ("Value loss", ("rl_value_loss", "rl_value_error")),
    ("Value function", ("rl_value_explained_variance", "rl_value_clipfrac")),
    ("KL coefficient", ("rl_kl_coef",)),
)
COMPLETIONS: Panels = (
    (
        "Completion length",
        ("rl_completion_length_mean", "rl_completion_length_min", "rl_completion_length_max"),
    ),
    ("Truncated", ("rl_completion_truncated_fraction",)),
    ("End tokens", ("rl_eos_tokens",)),
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
_LOG = {"rl_grad_norm", "rl_value_loss", "rl_policy_approxkl"}
_NOT_TENSORS = {"rl_step_duration_seconds", "rl_reward_function_dist"}
_MOST_LINES = 12


def build(catalog: Sequence[Metric]) -> Json:
    """The dashboard."""
    page = Page()
    state.overview(page)
    page.row("Is it learning?")
    page.add(_reward(), 12, 9)
    for title, names in LEARNING:
        page.add(lines(title, names), 6 if title != "Reward per function" else 12, 9)
    page.row("Is it stable?")
    for title, names in STABLE:
        page.add(lines(title, names))
    page.row("Distributions")
    for metric in distributions(catalog):
        page.add(heatmap(_title(metric), metric))
    page.add(_function_heatmap(), 24)
    page.row("Completions")
    for title, names in COMPLETIONS:
        page.add(lines(title, names))
    page.row("Sampler and trainer mismatch (vLLM)")
    for title, names in MISMATCH:
        page.add(lines(title, names), 12)
    state.speed(page)
    state.truth(page)
    rest(page, catalog)
    functions = variable(
        "reward_function",
        "Reward function",
        f"label_values(rl_reward_function_mean{{{select()}}}, reward_function)",
        multi=True,
    )
    return dashboard(
        UID,
        "RL training: run",
        "One run: state and alerts, reward, stability, distributions, completions, speed, and what was hidden.",
        page.panels,
        variables=(run_variable(), {**functions, "hide": 2}, window_variable()),
    )


def lines(title: str, names: Sequence[str]) -> Json:
    """A panel with the lines of some gauges; their labels tell lines of one gauge apart."""
    queries = [_line(name) for name in names]
    shown = NAMED.get(names[0]) or NAMED[names[0].replace("rl_eval_", "rl_")]
    return timeseries(title, queries, shown, log=names[0] in _LOG)


def _line(name: str) -> Query:
    if name.startswith("rl_eval_"):
        return gauge(name, "dataset")
    return gauge(name, *NAMED[name].labels)


def _reward() -> Json:
    """The mean with its spread."""
    mean, std = gauge("rl_reward_mean", legend="mean"), gauge("rl_reward_std").expr
    queries = [mean, Query(f"{mean.expr} + {std}", "mean + std"), Query(f"{mean.expr} - {std}", "mean - std")]
    return timeseries("Reward", queries, NAMED["rl_reward_mean"])


def distributions(catalog: Sequence[Metric]) -> list[Metric]:
    """What was seen at the tensor, as histograms; not one value a step, nor what is better seen elsewhere."""
    return [
        metric
        for metric in catalog
        if metric.kind is Kind.HISTOGRAM and not metric.of and metric.series not in _NOT_TENSORS
    ]


def _title(metric: Metric) -> str:
    words = metric.series.removeprefix("rl_").removesuffix("_dist").replace("_", " ")
    return words[0].upper() + words[1:].replace("kl", "KL")


def _function_heatmap() -> Json:
    panel = heatmap("Reward of $reward_function", NAMED["rl_reward_function_dist"])
    panel["targets"][0]["expr"] = panel["targets"][0]["expr"].replace(
        'run=~"$run"', 'run=~"$run",reward_function=~"$reward_function"'
    )
    panel.update(repeat="reward_function", repeatDirection="h", maxPerRow=4)
    return panel


def rest(page: Page, catalog: Sequence[Metric]) -> None:
    """Whatever no panel shows, by group and unit: a metric that is added to the catalogue is drawn."""
    shown = str(page.panels)
    left = [metric for metric in catalog if f"{metric.series}{{" not in shown and _in_a_run(metric)]
    page.row("Everything else", collapsed=True)
    for group in Group:
        members = sorted((metric for metric in left if metric.group is group), key=unit)
        for each, metrics in groupby(members, key=unit):
            found = list(metrics)
            for start in range(0, len(found), _MOST_LINES):
                part = found[start : start + _MOST_LINES]
                page.add(timeseries(group.value, [_any(metric) for metric in part], _plain(part[0]), unit=each))


def _in_a_run(metric: Metric) -> bool:
    return metric.kind in (Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM) and metric.group is not Group.EXPORTER


def _any(metric: Metric) -> Query:
    """As a line, whatever it is: a counter by its rate, a histogram by its median."""
    kept = ", ".join(("run", *metric.labels))
    name = " ".join((metric.series, *("{{" + label + "}}" for label in metric.labels)))
    if metric.kind is Kind.GAUGE:
        return gauge(metric.series, *metric.labels, legend=name)
    if metric.kind is Kind.COUNTER:
        return Query(f"sum by ({kept}) (rate({metric.series}{{{select()}}}[$__rate_interval]))", f"{name}, per second")
    buckets = f"sum by (le, {kept}) (rate({metric.series}_bucket{{{select()}}}[$__rate_interval]))"
    return Query(f"histogram_quantile(0.5, {buckets})", f"{name}, median")


def _plain(metric: Metric) -> Metric:
    """Without a healthy range: a panel of many lines has none."""
    return replace(metric, healthy=None, reading="", help="Metrics of this group that no panel above shows.")
