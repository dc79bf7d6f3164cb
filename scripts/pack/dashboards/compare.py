"""Dashboard of two to ten runs over each other, by step, with the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.model.metric import Metric
from scripts.pack.dashboards import differences, variables
from scripts.pack.dashboards.by_step import by_step
from scripts.pack.dashboards.frame import Json, Page, dashboard

UID = "rlexporter-compare"

Curves = tuple[tuple[str, tuple[str, ...]], ...]
"""Titles, each with the series of which the first that a run has is drawn; of a histogram it is the mean."""

_STABLE: Curves = (
    ("KL to the reference, per token", ("rl_kl_per_token", "rl_kl_per_token_dist")),
    ("Entropy, per token", ("rl_entropy_per_token", "rl_entropy_per_token_dist")),
    ("Gradient norm", ("rl_grad_norm", "rl_grad_norm_dist")),
    ("Probability ratio, mean", ("rl_policy_ratio_mean", "rl_policy_ratio_dist")),
    ("Clipped", ("rl_clip_ratio_region_mean", "rl_policy_clipfrac")),
    ("Groups without spread of reward", ("rl_reward_zero_std_fraction",)),
)
_COMPLETIONS: Curves = (
    ("Completion length", ("rl_completion_length_mean", "rl_completion_length_dist")),
    ("Truncated", ("rl_completion_truncated_fraction",)),
)
_PACE: Curves = (
    ("Step time", ("rl_step_time_seconds", "rl_step_duration_seconds")),
    ("Learning rate", ("rl_learning_rate",)),
)
_ONLY_PPO: Curves = (
    ("KL to the reference, per sequence", ("rl_kl_per_sequence", "rl_kl_per_sequence_dist")),
    ("Value loss", ("rl_value_loss", "rl_value_loss_dist")),
    ("Explained variance", ("rl_value_explained_variance",)),
)
_LOG = {"rl_grad_norm", "rl_value_loss"}


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    page.row("Runs")
    page.add(differences.runs(), 24, 8)
    page.row("Is it learning?")
    page.add(by_step("Reward", ("rl_reward_mean", "rl_reward_dist")), 14, 11)
    page.add(differences.settings(), 10, 11)
    page.add(_of_function(), 24)
    for title, curves in (("Is it stable?", _STABLE), ("Completions", _COMPLETIONS), ("Is it fast?", _PACE)):
        page.row(title)
        _add(page, curves)
    page.row("What only PPO logs", collapsed=True)
    _add(page, _ONLY_PPO)
    made = dashboard(
        UID,
        "RL training: compare",
        "Two to ten runs over each other, by step, whenever they ran; and the settings in which they differ.",
        page.panels,
        variables=variables.common(_runs(), variables.reward_function()),
    )
    # Runs of last week beside one of today; nothing on this page is drawn over time.
    made.update(time={"from": "now-7d", "to": "now"}, refresh="5m")
    made["annotations"]["list"] = []
    return made


def _runs() -> Json:
    """Return the variable for the runs: those that were there in the time that is shown, without one for all."""
    made = variables.run(multi=True)
    made.update(
        includeAll=False, current={"text": [], "value": []}, description="Two to ten runs of the time that is shown."
    )
    return made


def _add(page: Page, curves: Curves) -> None:
    width = 24 // min(len(curves), 3)
    for title, names in curves:
        page.add(by_step(title, names, log=names[0] in _LOG), width, 9)


def _of_function() -> Json:
    names = ("rl_reward_function_mean", "rl_reward_function_dist")
    panel = by_step("Reward of $reward_function", names, 'reward_function=~"$reward_function"')
    panel.update(repeat="reward_function", repeatDirection="h", maxPerRow=3)
    return panel
