"""Distributions of a run: quantiles in place of noise, and heat maps."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.families import Family
from scripts.pack.dashboards.frame import Json, Page, select
from scripts.pack.dashboards.panels import (
    UNSEEN,
    Query,
    capital,
    described,
    heatmap,
    mean,
    quantile,
    timeseries,
    words,
)

_OF = select('rank="0"')
_PARTS = ((0.95, "95 %"), (0.5, "50 %"), (0.05, "5 %"))
_READING = "Half of the values lie above the middle line, nine of ten between the outer ones."
_FUNCTIONS = "rl_reward_function_dist"
_ABSENT = {
    "rl_policy_ratio_dist": f"the ratio is one of sequences here, or each update is on fresh samples, or {UNSEEN}",
    "rl_sequence_ratio_dist": f"the ratio is one of tokens here, or each update is on fresh samples, or {UNSEEN}",
    "rl_entropy_per_token_dist": f"only the mean is known in this version of TRL (see Entropy), or {UNSEEN}",
    "rl_kl_per_token_dist": f"no reference (beta is 0), or {UNSEEN}",
}


def quantiles(page: Page, family: Family) -> None:
    """Add the 5, 50 and 95 % quantiles of each distribution to ``page``, and the mean log-probabilities."""
    for name in family.spread:
        if name != _FUNCTIONS:
            page.add(_quantiles(name), 8)
    page.add(_logprobs(), 8)


def heatmaps(page: Page, family: Family) -> None:
    """Add a heat map of each distribution to ``page``, and of each reward function."""
    for name in family.spread:
        if name == _FUNCTIONS:
            page.add(_of_functions(), 24)
        else:
            page.add(heatmap(capital(words(name)), NAMED[name], 'rank="0"', absent=_ABSENT.get(name, "")), 8)


def _of_functions() -> Json:
    """Return the heat map of a reward function, which Grafana repeats for each."""
    made = heatmap("Reward of $reward_function", NAMED[_FUNCTIONS], 'rank="0"', 'reward_function=~"$reward_function"')
    made.update(repeat="reward_function", repeatDirection="h", maxPerRow=3)
    return made


def _quantiles(name: str) -> Json:
    metric = NAMED[name]
    return timeseries(
        capital(words(name)),
        [Query(quantile(metric, part, _OF), legend) for part, legend in _PARTS],
        metric,
        window=True,
        absent=_ABSENT.get(name, ""),
        description=f"{described(metric)} {_READING}",
    )


def _logprobs() -> Json:
    """Return the mean log-probability of policy and reference, side by side."""
    policy, reference = NAMED["rl_logprob_dist"], NAMED["rl_ref_logprob_dist"]
    text = "Where the reference falls away from the policy, the policy writes what the reference would not."
    return timeseries(
        "Log-probability, policy and reference",
        [Query(mean(policy, _OF), "policy"), Query(mean(reference, _OF), "reference")],
        policy,
        window=True,
        description=f"{described(policy)} {text}",
    )
