"""Families of algorithms: what the dashboard of a run shows, for GRPO and RLOO, and for both generations of PPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlexporter.commands.generate import IDENTITY

Panels = tuple[tuple[str, tuple[str, ...]], ...]
"""Titles of panels, each with the gauges that it shows, and histograms by their means. Fractions beside others have an
axis of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A dashboard of a run."""

    uid: str
    title: str
    runs: str
    """A matcher of `rl_run_info` for its runs."""
    answers: Mapping[str, tuple[str, ...]]
    """The numbers that answer each question, by the short names of `rlexporter.catalog.questions`."""
    spread: tuple[str, ...]
    """Histograms whose quantiles are drawn, and that are drawn as heat maps."""
    more: Panels
    """What else is logged."""
    learning: Panels = ()
    """What says whether it learns, beside the reward."""


_SPREAD = (
    "rl_reward_dist",
    "rl_advantage_dist",
    "rl_policy_ratio_dist",
    "rl_kl_per_token_dist",
    "rl_entropy_per_token_dist",
    "rl_completion_length_dist",
)
_OPTIMIZER: Panels = (("Learning rate", ("rl_learning_rate",)),)
SAMPLES = ("mismatch", "effective samples", "staleness", "waiting")
"""The numbers that say if samples are what the policy would say, by their short names."""
SAMPLERS: Panels = (
    ("Sampler and trainer disagree by", ("rl_sampling_logp_difference_mean", "rl_sampling_logp_difference_max")),
    (
        "Importance ratio of the sampler",
        tuple(f"rl_importance_sampling_ratio_{each}" for each in ("min", "mean", "max")),
    ),
    ("What fails", ("rl_rollout_error_fraction", "rl_tool_failure_frequency", "rl_completion_empty_fraction")),
    ("Reward of each agent or environment", ("rl_agent_reward",)),
    ("Scores of evaluations", ("rl_eval_score", "rl_eval_reward", "rl_eval_pass_at_k", "rl_validation_reward_mean")),
)
"""Panels on samples, whichever the family."""

GRPO = Family(
    uid="rlexporter-run",
    title="RL training: run",
    runs='algorithm!~"ppo.*"',
    answers={
        "learning": ("groups without spread",),
        "stable": ("KL", "entropy", "ratio", "clipped", "gradient norm", "completion length", "cut off"),
    },
    learning=(("Reward of each function", ("rl_reward_function_mean",)),),
    spread=(*_SPREAD, "rl_sequence_ratio_dist", "rl_reward_group_range_dist", "rl_reward_function_dist"),
    more=(
        ("Spread of reward", ("rl_reward_std",)),
        ("Loss", ("rl_loss",)),
        *_OPTIMIZER,
        (
            "Clipped above and below",
            ("rl_clip_ratio_low_mean", "rl_clip_ratio_high_mean"),
        ),
        ("Completion length", ("rl_completion_length_mean", "rl_completion_length_min", "rl_completion_length_max")),
    ),
)
PPO = Family(
    uid="rlexporter-ppo",
    title="RL training: run of PPO",
    runs='algorithm=~"ppo.*"',
    answers={
        "learning": (),
        "stable": ("KL", "entropy", "ratio", "clipped", "gradient norm", "value loss", "completion length"),
    },
    learning=(
        ("What PPO maximizes", ("rl_rlhf_reward", "rl_scores_mean", "rl_non_score_reward_per_sequence")),
        (
            "Value function",
            ("rl_value_loss", "rl_value_dist", "rl_return_dist", "rl_value_explained_variance", "rl_value_clipfrac"),
        ),
    ),
    spread=(*_SPREAD, "rl_value_dist", "rl_return_dist"),
    more=(
        ("KL to the reference, per sequence", ("rl_kl_per_sequence",)),
        ("KL coefficient", ("rl_kl_coef",)),
        ("Approximate KL of an update", ("rl_policy_approxkl", "rl_policy_policykl")),
        ("Losses", ("rl_policy_loss", "rl_value_loss", "rl_total_loss")),
        *_OPTIMIZER,
    ),
)
FAMILIES = (GRPO, PPO)
_ASKED = tuple(name for name in IDENTITY if name != "run")
"""What an address says of a run beside its name."""


def with_dashboard(info: str, *by: str) -> str:
    """Return ``info`` by the labels ``by``, and with the address of each run's dashboard, but for the run, as a label.

    `algorithm` and the labels of the identity of a run are among ``by``. One that a run does not have is not in its
    address: Grafana would leave the name of the field there.
    """
    named = f"max by ({', '.join(by)}) ({info})"
    for label, value, source, pattern in (
        ("uid", f"{GRPO.uid}?", "", ""),
        ("uid", f"{PPO.uid}?", "algorithm", "ppo.*"),
        *((f"its_{name}", f"var-{name}=$1&", name, "(.+)") for name in _ASKED),
    ):
        named = f'label_replace({named}, "{label}", "{value}", "{source}", "{pattern}")'
    parts = ", ".join(f'"its_{name}"' for name in _ASKED)
    joined = f'label_join({named}, "dashboard", "", "uid", {parts})'
    return f"max by ({', '.join((*by, 'dashboard'))}) ({joined})"
