"""The table of conditions, each declared once. Rules, runbooks, docs and the judge derive from it.

The order is from cause to symptom; rules and docs keep it. Sources of the limits:
  [trl]    TRL's logging guide and its own constants        [ranges] PPO healthy-ranges cheat sheet (tests/data/seeds)
  [37]     Huang et al., The 37 Implementation Details of Proximal Policy Optimization
  [verl] [miles] [nemo] [tinker]  documentation of verl, miles, NeMo-RL and Tinker
  [dapo]   Yu et al., DAPO, arXiv 2503.14476
  [runs]   recorded runs of real TRL trainers with tiny models, healthy and broken (docs/alerts.md)
  [real]   public logs of real runs with models of 0.5 to 20 billion parameters: 36 healthy, 18 broken (docs/alerts.md)
"""

from __future__ import annotations

from rlexporter.catalog.entries import above, below, condition, critical, info, warning
from rlexporter.model.condition import Baseline, Condition, Family, Read, Signal, Source

_PPO = ("ppo", "ppo-legacy")
_GROUP = ("grpo", "rloo", "async-grpo")
_GROUPS = ("grpo", "rloo")
"""Those whose rollouts and losses are seen at the tensor."""
_K3 = ("grpo",)
_NOT_K3 = ("rloo", "ppo", "ppo-legacy")
_TRAINERS = (*_GROUP, *_PPO)


def _signal(name: str, unit: str, *sources: Source | str) -> Signal:
    """Make a signal that is read at the first of ``sources`` with a value; a string is a series and its value."""
    return Signal(name, unit, tuple(Source(source) if isinstance(source, str) else source for source in sources))


def _mean(series: str, variant: str = "", algorithms: tuple[str, ...] = ()) -> Source:
    return Source(series, Read.MEAN, variant, algorithms)


def _derived(function: str, *reads: str, variant: str = "") -> Source:
    return Source(function, Read.DERIVED, variant, reads=reads)


SERIES_SIGNALS: tuple[Signal, ...] = (
    _signal("reward_weights_lost", "reward functions", _derived("reward_weights_lost", "rl_reward_function_weight")),
    _signal("reward", "reward", "rl_reward_mean", "rl_scores_mean", _mean("rl_reward_dist"), "rl_rlhf_reward"),
    _signal("reward_std", "reward", "rl_reward_std", "rl_scores_std", Source("rl_reward_dist", Read.SPREAD)),
    _signal("zero_std_fraction", "fraction", "rl_reward_zero_std_fraction"),
    _signal(
        "kl",
        "nats",
        _mean("rl_kl_per_token_dist", "k3", _K3),
        _mean("rl_kl_per_token_dist", "k1", _NOT_K3),
        Source("rl_kl_per_token", variant="k3", algorithms=_K3),
        Source("rl_kl_per_token", variant="k1"),
        Source("rl_kl_penalty_per_token", variant="k1"),
        Source("rl_kl_k1_per_token", variant="k1"),
        _derived("kl", "rl_kl_per_sequence", variant="k1"),
        Source("rl_kl_per_sequence", variant="sequence"),
    ),
    _signal(
        "kl_signed",
        "nats",
        Source("rl_kl_per_sequence", variant="sequence"),
        _mean("rl_kl_per_token_dist", "k1", _NOT_K3),
        Source("rl_kl_per_token", variant="k1", algorithms=_NOT_K3),
    ),
    _signal("kl_coef", "", "rl_kl_coef", _mean("rl_kl_coef")),
    _signal(
        "entropy",
        "nats per token",
        _mean("rl_entropy_per_token_dist"),
        "rl_entropy_per_token",
        "rl_update_entropy_per_token",
        "rl_sampled_entropy_per_token",
        Source("rl_logprob_dist", Read.MINUS_MEAN),
    ),
    _signal("ref_dropout", "fraction", _mean("rl_ref_dropout")),
    _signal("ref_noise", "nats", _mean("rl_ref_logprob_noise")),
    _signal("approxkl", "nats per token", "rl_policy_approxkl"),
    _signal("ratio", "", _mean("rl_policy_ratio_dist"), "rl_policy_ratio_mean"),
    _signal("ratio_tail", "fraction", Source("rl_policy_ratio_dist", Read.SHARE, outside=(0.1, 10.0))),
    _signal(
        "clipfrac",
        "fraction",
        Source("rl_policy_clipfrac", variant="token"),
        Source("rl_clip_ratio_region_mean", variant="sequence", algorithms=("rloo",)),
        Source("rl_clip_ratio_region_mean", variant="token"),
        Source("rl_clip_ratio", variant="token"),
    ),
    _signal("advantage", "", _mean("rl_advantage_dist"), "rl_advantage_mean"),
    _signal("advantage_spread", "", Source("rl_advantage_dist", Read.SPREAD, algorithms=_PPO)),
    _signal("grad_norm", "", _mean("rl_grad_norm_dist"), "rl_grad_norm"),
    _signal("value_loss", "squared reward", _mean("rl_value_loss_dist"), "rl_value_loss"),
    _signal("length", "tokens", _mean("rl_completion_length_dist"), "rl_completion_length_mean"),
    _signal("length_spread", "tokens", Source("rl_completion_length_dist", Read.SPREAD), "rl_completion_length_std"),
    _signal("truncated", "fraction", "rl_completion_truncated_fraction"),
    _signal(
        "sampling_difference",
        "nats",
        Source("rl_sampling_logp_difference_mean", variant="logp"),
        _mean("rl_sampling_logp_difference_mean", "logp"),
        Source("rl_rollout_kl_per_token", variant="kl"),
        Source("rl_trainer_kl_per_token", variant="kl"),
        _derived("log_factor", "rl_sampling_probability_factor_mean", variant="logp"),
        _derived("sampler_k1", "rl_sampling_kl_per_token", variant="kl"),
    ),
    _signal("sampling_ratio", "", "rl_importance_sampling_ratio_mean", "rl_sampling_weight_mean"),
    _signal("learning_rate", "", "rl_learning_rate"),
    _signal("advantage_reward", "", _mean("rl_advantage_reward_correlation")),
    _signal("first_use", "nats", _mean("rl_first_use_log_ratio")),
    _signal("loss_mask_wrong", "fraction", _mean("rl_loss_mask_wrong_fraction")),
    _signal("prompts_repeated", "fraction", _mean("rl_prompts_repeated_fraction")),
    _signal("copied", "fraction", _mean("rl_completion_copied_fraction")),
    _signal("copied_expected", "fraction", _mean("rl_completion_copied_expected_fraction")),
    _signal("prompt_end_changed", "fraction", _mean("rl_prompt_end_changed_fraction")),
    _signal("prompt_length", "tokens", _mean("rl_prompt_length_dist")),
    _signal("ref_changed", "fraction", _mean("rl_ref_weight_changed_fraction")),
    _signal("not_in_optimizer", "fraction", _mean("rl_optimizer_missing_fraction")),
    _signal("gradient_zero", "fraction", _mean("rl_gradient_zero_fraction")),
    _signal("optimizer_updates", "updates", _mean("rl_optimizer_updates")),
    _signal("weights_changed", "fraction", _mean("rl_weight_changed_fraction")),
    _signal("weight_norm", "", _mean("rl_weight_norm")),
    _signal("update_size", "", _mean("rl_weight_update_size")),
)
"""The signals that a series holds; `rlexporter.conditions` derives the others."""

NONFINITE: dict[str, tuple[str, ...]] = {
    "nonfinite_reward": (
        *("rl_reward_mean", "rl_reward_std", "rl_reward_dist", "rl_scores_mean", "rl_scores_std"),
        *("rl_reward_function_mean", "rl_reward_function_std", "rl_reward_function_dist"),
    ),
    "nonfinite_value_loss": ("rl_value_loss",),
    "nonfinite": (
        *("rl_weight_norm", "rl_kl_per_token", "rl_kl_per_token_dist", "rl_kl_per_sequence", "rl_kl_per_sequence_dist"),
        *("rl_kl_loss_per_token", "rl_kl_penalty_per_token", "rl_kl_k1_per_token", "rl_kl_estimate_per_token"),
        *("rl_advantage_mean", "rl_token_advantage_mean", "rl_advantage_dist"),
        *("rl_policy_ratio_mean", "rl_policy_ratio_dist", "rl_sequence_ratio_dist"),
        *("rl_policy_approxkl", "rl_policy_policykl", "rl_policy_loss"),
        *("rl_loss", "rl_total_loss", "rl_micro_batch_loss_mean", "rl_grad_norm", "rl_value_grad_norm"),
    ),
    "nonfinite_eval_reward": ("rl_eval_reward_function_unfiltered_mean",),
}
"""The metrics whose NaN and infinities each of these signals counts, in the order in which a step computes them.

`nonfinite` counts those of all other metrics too, behind these.
"""


def _nonfinite(
    name: str,
    alert: str,
    what: str,
    algorithms: tuple[str, ...] = (),
    related: tuple[str, ...] = (),
    about: str = "",
) -> Condition:
    return condition(name, alert, Family.NONFINITE, algorithms).when(
        above(name, critical(0.0)),
        summary=f"{what} is NaN or infinite.",
        about=about,
        related=("rl_nonfinite_values_total", *related),
    )


KL_FLOOR = {"k1": 0.25, "k3": 0.25, "sequence": 3.0}
"""Up to this KL, by variant, a policy is near its reference, however fast it got there."""

COPIES_EXCESS = 0.3
"""By so much the share of copies may be larger than the policy would give."""

KL_AT_START = 0.3
"""The first KL a token that another kernel or precision may make."""

KL_COEF_LOST = 1e-4
"""The share of its highest value below which a coefficient holds nothing."""

SETTLED = 70
"""In so many steps KL may grow from 0 by any factor, as the policy leaves its reference."""


REWARD_GAIN_FROM = 60
"""The number of rewards before the signal `reward_gain` is computed: the first 30 and the last 30."""
_PLATEAU_FROM = 170
"""The number of rewards before a plateau is judged."""

REWARD_DIP = 4.0
"""So many spreads a fall of the reward counts at most while it may be a dip."""


CONDITIONS: tuple[Condition, ...] = (
    _nonfinite(
        "nonfinite_reward",
        "RLRewardLost",
        "A reward",
        about="{subject} returned NaN or infinity.",
        related=("rl_reward_mean", "rl_reward_function_mean"),
    ),
    _nonfinite(
        "nonfinite_value_loss",
        "RLValueLossNonFinite",
        "The value loss",
        algorithms=_PPO,
        related=("rl_value_loss", "rl_value_mean", "rl_return_mean"),
    ),
    _nonfinite(
        "nonfinite",
        "RLNotANumber",
        "A number that training computes",
        about="{subject} is NaN or infinite.",
        related=("rl_weight_norm", "rl_loss", "rl_grad_norm", "rl_last_good_checkpoint_step"),
    ),
    condition("reward_lost", "RLRewardLost", Family.NONFINITE).when(
        above("reward_lost", critical(0.5)),
        summary="No completion of a step got a reward.",
        related=("rl_undefined_values_total", "rl_reward_mean"),
    ),
    condition("reward_function_lost", "RLRewardLost", Family.NONFINITE, _GROUP).when(
        above("reward_function_lost", critical(0.5)),
        summary="A reward function no longer returns numbers.",
        about="{subject} no longer returns numbers.",
        related=("rl_reward_function_mean", "rl_undefined_values_total"),
    ),
    condition("prompts_stuck", "RLPromptsChanged", Family.DATA, _TRAINERS).when(
        above("prompts_stuck", warning(0.9, k=5, n=5)),
        summary="Every step trains on the same prompts.",
        related=("rl_prompts_repeated_fraction", "rl_prompt_length_dist"),
    ),
    condition("prompts_short", "RLPromptsChanged", Family.DATA, _TRAINERS).when(
        below("prompt_shortness", warning(0.7, k=2, n=3)),
        summary="Prompts have become much shorter.",
        related=("rl_prompt_length_dist", "rl_prompt_end_changed_fraction"),
    ),
    condition("prompt_end_changed", "RLPromptsChanged", Family.DATA, _GROUPS).when(
        above("prompt_end_changed", warning(0.5, k=2, n=3)),
        summary="Prompts end with another token than before.",
        related=("rl_prompt_end_changed_fraction", "rl_prompt_length_dist"),
    ),
    condition("loss_mask_wrong", "RLLossInputsWrong", Family.OBJECTIVE, _GROUPS).when(
        above("loss_mask_wrong", warning(0.25, k=2, n=3), critical(0.75, k=2, n=3)),
        summary="The loss mask does not fit the completions.",
        related=("rl_loss_mask_wrong_fraction", "rl_completion_length_dist"),
    ),
    condition("advantage_wrong", "RLLossInputsWrong", Family.OBJECTIVE, _TRAINERS).when(
        below("advantage_reward", warning(0.5, k=2, n=3), critical(0.0, k=4, n=5)),
        summary="Advantages do not follow the rewards they are computed from.",
        related=("rl_advantage_reward_correlation", "rl_advantage_dist", "rl_reward_dist"),
    ),
    condition("old_logprobs_stale", "RLLossInputsWrong", Family.OBJECTIVE, _GROUPS).when(
        above("first_use", warning(3.0, k=2, n=3), vs=Baseline.START, floor=0.01),
        summary="The old log-probabilities are not those of the policy that sampled.",
        related=("rl_first_use_log_ratio", "rl_policy_ratio_dist"),
    ),
    condition("reference_moved", "RLReference", Family.OBJECTIVE, _TRAINERS).when(
        above("ref_changed", warning(0.001)),
        summary="The reference model changes although nothing asked for it.",
        related=("rl_ref_weight_changed_fraction", "rl_kl_per_token", "rl_ref_logprob_dist"),
    ),
    condition("gradients_lost", "RLWeights", Family.OPTIMIZER, _TRAINERS).when(
        above("gradients_lost", warning(0.05, k=2, n=2)),
        summary="Some of the weights no longer get a gradient.",
        related=("rl_gradient_zero_fraction", "rl_weight_changed_fraction", "rl_grad_norm"),
    ),
    condition("weight_norm_jump", "RLWeights", Family.WEIGHTS, _TRAINERS).when(
        above("weight_norm_step", warning(8.0), vs=Baseline.RECENT, floor=0.08),
        summary="The norm of the trained weights has jumped.",
        related=("rl_weight_norm", "rl_weight_update_size", "rl_weight_changed_fraction"),
    ),
    condition("weights_moved", "RLWeights", Family.WEIGHTS, _TRAINERS).when(
        above("update_per_rate", warning(8.0), vs=Baseline.RECENT, min_observations=20),
        summary="The weights have moved much farther than an update moves them.",
        related=("rl_weight_update_size", "rl_learning_rate", "rl_weight_norm"),
    ),
    condition("optimizer_restarted", "RLWeights", Family.WEIGHTS, _TRAINERS).when(
        above("optimizer_restart", warning(0.5)),
        summary="The optimizer has lost its moments.",
        related=("rl_optimizer_updates", "rl_weight_update_size", "rl_learning_rate"),
    ),
    condition("optimizer_incomplete", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        above("optimizer_missing", warning(0.0, k=2, n=2), critical(0.99, k=3, n=3)),
        summary="Some of the trained weights are not in the optimizer.",
        related=("rl_optimizer_missing_fraction", "rl_weight_changed_fraction"),
        foretold_by=("weights_frozen", "policy_frozen"),
    ),
    condition("weights_barely_change", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        below("weights_rounded", info(0.05, k=5, n=5)),
        summary="Hardly any weight changes: most updates are lost to rounding.",
        related=("rl_weight_changed_fraction", "rl_learning_rate"),
    ),
    condition("gradient_dead", "RLNoSignal", Family.GRAD_DEAD, _TRAINERS).when(
        above("gradient_dead", warning(1.9, k=3, n=12), critical(5.5)),
        summary="The gradient is exactly zero although rewards differ.",
        related=("rl_grad_norm", "rl_reward_std", "rl_completion_truncated_fraction"),
    ),
    condition("learning_rate_zero", "RLPolicyFrozen", Family.LR).when(
        below("learning_rate_share", warning(1e-6, k=10, n=10)),
        summary="The learning rate is zero.",
        related=("rl_learning_rate",),
    ),
    condition("learning_rate_jump", "RLUpdateTooLarge", Family.LR).when(
        above("learning_rate", warning(5.0), vs=Baseline.PREVIOUS, min_observations=2),
        summary="The learning rate has jumped.",
        related=("rl_learning_rate",),
    ),
    condition("grad_spike", "RLGradient", Family.GRAD).when(
        above(
            "grad_norm", warning(100.0, learning="recent gradients"), vs=Baseline.P90, floor=1e-6, min_observations=20
        ),
        summary="The gradient norm has spiked.",
        related=("rl_grad_norm", "rl_reward_std"),
    ),
    condition("grad_explosion", "RLGradient", Family.GRAD).when(
        above("grad_norm", critical(5.0, k=3, n=5, learning="recent gradients"), vs=Baseline.P90, floor=1e-6),
        summary="The gradient norm explodes.",
        related=("rl_grad_norm", "rl_reward_std", "rl_sampling_logp_difference_mean"),
    ),
    condition("ratio_high", "RLRatio", Family.POLICY_STEP).when(
        above("ratio", warning(2.0, k=2, n=2), critical(10.0)),
        summary="The probability ratio of new and old policy is far above 1.",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl", "rl_clip_ratio_region_mean"),
        stops=False,
    ),
    condition("ratio_tail", "RLRatio", Family.POLICY_STEP).when(
        above("ratio_tail", warning(0.02, k=2, n=3), critical(0.2)),
        summary="Many tokens have a probability ratio below 0.1 or above 10.",
        related=("rl_policy_ratio_dist",),
    ),
    condition("ratio_low", "RLRatio", Family.POLICY_STEP).when(
        below("ratio", warning(0.6, k=2, n=2), vs=Baseline.START),
        summary="The probability ratio of new and old policy is far below its own level.",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("approxkl_spike", "RLUpdateTooLarge", Family.POLICY_STEP, _PPO).when(
        above("approxkl", warning(1.0)),
        summary="One update has moved the policy very far.",
        related=("rl_policy_approxkl", "rl_policy_clipfrac"),
    ),
    condition("approxkl_high", "RLUpdateTooLarge", Family.POLICY_STEP, _PPO).when(
        above("approxkl", warning(0.2, k=3, n=3), critical(1.0, k=3, n=5)),
        summary="Updates move the policy too far.",
        related=("rl_policy_approxkl", "rl_policy_clipfrac", "rl_policy_ratio_dist"),
        stops=False,
    ),
    condition("clipfrac_high", "RLUpdateTooLarge", Family.POLICY_STEP).when(
        above("clipfrac", warning({"token": 0.3, "sequence": 0.5}, k=5, n=12)),
        summary="Too much of the updates is clipped.",
        related=("rl_policy_clipfrac", "rl_clip_ratio_region_mean"),
    ),
    condition("sampling_jump", "RLSamplerMismatch", Family.KL_NEGATIVE, (*_GROUP, "ppo")).when(
        above(
            "sampling_difference",
            warning({"logp": 5.0, "kl": 20.0}, k=2, n=3),
            vs=Baseline.RECENT,
            floor={"logp": 0.03, "kl": 0.01},
        ),
        summary="Sampler and trainer disagree far more than they did.",
        related=("rl_sampling_logp_difference_mean", "rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("sampler_differs", "RLSamplerMismatch", Family.KL_NEGATIVE).when(
        above("sampler_gap", warning(0.05)),
        summary="Completions are not drawn from the policy being trained.",
        related=("rl_logprob_dist", "rl_entropy_per_token_dist", "rl_policy_ratio_dist"),
    ),
    condition("completions_copied", "RLSamplerMismatch", Family.KL_NEGATIVE, _GROUPS).when(
        above("copies_excess", warning(COPIES_EXCESS, k=2, n=3)),
        summary="Completions are copies of each other far more often than the policy would draw them.",
        foretold_by=("reward_function_blind",),
        related=("rl_completion_copied_fraction", "rl_completion_copied_expected_fraction", "rl_logprob_dist"),
    ),
    condition("sampling_ratio_low", "RLSamplerMismatch", Family.KL_NEGATIVE, _GROUP).when(
        below("sampling_ratio", warning(0.3, k=5, n=5)),
        summary="Importance sampling throws most of the samples away.",
        related=("rl_importance_sampling_ratio_mean",),
    ),
    condition("kl_at_start", "RLReference", Family.KL_HIGH).when(
        above(
            "kl_first",
            info({"k1": KL_AT_START, "k3": KL_AT_START, "sequence": 5.0}),
            critical({"k1": 2.0, "k3": 2.0, "sequence": 20.0}),
        ),
        summary="The policy differs from the reference before any update.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_ref_logprob_dist"),
    ),
    condition("reference_differs", "RLReference", Family.KL_HIGH, _TRAINERS).when(
        above("kl_first_seen", info(0.02)),
        summary="The reference is not quite the policy that training began with.",
        related=("rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_dropout", "RLReference", Family.KL_HIGH, ("ppo",)).when(
        above("ref_dropout", warning(0.0)),
        summary="Dropout is on in the reference.",
        related=("rl_ref_dropout", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_noisy", "RLReference", Family.KL_HIGH, _GROUP).when(
        above("ref_noise", warning(0.02, k=3, n=5)),
        summary="The reference contradicts itself: dropout is on in it.",
        related=("rl_ref_logprob_noise", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("kl_high", "RLKL", Family.KL_HIGH).when(
        above(
            "kl",
            warning({"k1": 1.2, "k3": 3.0, "sequence": 10.0}, k=3, n=5, learning="distance"),
            critical({"k1": 4.0, "k3": 5.0, "sequence": 50.0}, k=6, n=10),
        ),
        summary="The policy is far from the reference.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_kl_per_token_dist", "rl_reward_mean"),
    ),
    condition("kl_jump", "RLKL", Family.KL_HIGH).when(
        above(
            "kl",
            warning(6.0, k=4, n=5, learning="growth"),
            critical(10.0, k=12, n=15, learning="growth"),
            vs=Baseline.BEFORE,
            floor=KL_FLOOR,
            min_observations=SETTLED,
        ),
        summary="The KL divergence to the reference has jumped.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_grad_norm"),
    ),
    condition("reward_hacking", "RLRewardHacking", Family.KL_HIGH).when(
        above("hacking", critical(5.0)),
        summary="The reward rises while KL runs away.",
        about="{subject} rises while KL runs away.",
        related=("rl_reward_mean", "rl_kl_per_token", "rl_kl_per_sequence", "rl_completion_length_mean"),
        foretold_by=("kl_high", "kl_jump"),
        level="kl",
    ),
    condition("kl_negative", "RLSamplerMismatch", Family.KL_NEGATIVE, _NOT_K3).when(
        below(
            "kl_signed",
            warning({"sequence": -1.0, "k1": -0.05}, k=2, n=2),
            critical({"sequence": -1.0, "k1": -0.05}, k=5, n=5),
        ),
        summary="The KL divergence is clearly below zero.",
        related=("rl_kl_per_sequence", "rl_kl_per_token", "rl_policy_ratio_dist"),
        stops=False,
    ),
    condition("kl_coef_runaway", "RLKLCoefficient", Family.KL_COEF, ("ppo-legacy", "online-dpo")).when(
        above("kl_coef", warning(3.0), critical(30.0), vs=Baseline.START),
        summary="The adaptive KL coefficient runs away.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_non_score_reward_per_token"),
        stops=False,
    ),
    condition("kl_coef_lost", "RLKLCoefficient", Family.OBJECTIVE, (*_PPO, "grpo", "rloo", "online-dpo")).when(
        below("kl_coef_share", warning(KL_COEF_LOST), critical(-KL_COEF_LOST)),
        summary="The coefficient of the KL penalty is 0 or negative.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("kl_coef_stuck", "RLKLCoefficient", Family.KL_COEF, ("ppo-legacy",)).when(
        above("kl_coef_stuck", warning(4.5)),
        summary="The adaptive KL coefficient no longer adapts.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("entropy_low", "RLEntropy", Family.ENTROPY_LOW).when(
        below("entropy", warning(0.2, k=3, n=5), vs=Baseline.START),
        summary="Entropy has fallen far below its start.",
        related=("rl_entropy_per_token", "rl_logprob_dist", "rl_reward_std"),
    ),
    condition("entropy_collapsed", "RLEntropy", Family.ENTROPY_LOW).when(
        below("entropy", critical(0.04, k=5, n=5), vs=Baseline.START),
        summary="Entropy has collapsed: the policy is deterministic.",
        related=("rl_entropy_per_token", "rl_entropy_per_token_dist", "rl_reward_zero_std_fraction"),
    ),
    condition("entropy_high", "RLEntropy", Family.ENTROPY_HIGH).when(
        above("entropy", warning(4.0, k=5, n=5), vs=Baseline.START, floor=0.6),
        summary="Entropy grows.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("entropy_exploded", "RLEntropy", Family.ENTROPY_HIGH).when(
        above("entropy", critical(4.0, k=12, n=15), vs=Baseline.START, floor=1.5),
        summary="Entropy has exploded: the policy writes noise.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("collapsed", "RLEntropy", Family.ENTROPY_LOW).when(
        above("collapse_signs", critical(2.0, k=8, n=10)),
        summary="The policy has collapsed: entropy fell, and other signals with it, without any gain in reward.",
        related=("rl_entropy_per_token", "rl_completion_length_mean", "rl_grad_norm", "rl_reward_zero_std_fraction"),
    ),
    condition("value_loss_spike", "RLValueLoss", Family.VALUE, _PPO).when(
        above("value_loss", warning(20.0), critical(5.0, k=3, n=5), vs=Baseline.P90, floor=1e-6),
        summary="The value loss spikes.",
        related=("rl_value_loss", "rl_return_mean", "rl_value_mean"),
        stops=False,
    ),
    condition("advantage_flat", "RLNoSignal", Family.ADVANTAGE, _PPO).when(
        below("advantage_spread", warning(0.01), critical(0.01, k=3, n=3)),
        summary="Advantages do not differ: there is nothing to learn from.",
        related=("rl_advantage_dist", "rl_reward_std", "rl_value_dist", "rl_return_dist"),
    ),
    condition("advantage_dead", "RLNoSignal", Family.ADVANTAGE, _GROUP).when(
        above("advantage_dead", warning(0.5), critical(0.5, k=3, n=3)),
        summary="Advantages are all the same although rewards differ.",
        related=("rl_advantage_dist", "rl_reward_group_range_dist", "rl_reward_std", "rl_kl_per_token"),
    ),
    condition("advantage_off_centre", "RLLossInputsWrong", Family.ADVANTAGE, _TRAINERS).when(
        above("advantage_offset", warning(0.2, k=5, n=5)),
        summary="Advantages are not centered.",
        related=("rl_advantage_dist", "rl_advantage_mean"),
    ),
    condition("reward_flat", "RLNoSignal", Family.REWARD_FLAT).when(
        above("reward_flat", warning(7.0), critical(10.0)),
        summary="Rewards do not differ: there is nothing to learn from.",
        related=("rl_reward_mean", "rl_reward_std", "rl_reward_zero_std_fraction", "rl_entropy_per_token"),
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
    ),
    condition("solved", "RLRewardPlateau", Family.REWARD_FLAT).when(
        above("solved", info(0.9, k=8, n=10)),
        summary="Rewards do not differ, at the best reward of the run: the task is solved.",
        related=("rl_reward_mean", "rl_reward_zero_std_fraction"),
    ),
    condition("reward_function_blind", "RLRewardFunctionDead", Family.REWARD_FLAT, _GROUPS).when(
        above("reward_functions_blind", warning(0.5)),
        summary="A reward function no longer tells the completions of a prompt apart.",
        about="{subject} no longer tells the completions of a prompt apart.",
        related=("rl_reward_function_flat_fraction", "rl_reward_function_dist"),
    ),
    condition("reward_zeroed", "RLRewardFunctionDead", Family.REWARD_FLAT, _TRAINERS).when(
        above("reward_zeros", warning(0.08)),
        summary="A reward is exactly 0 for some completions, which never happened before.",
        about="{subject} is exactly 0 for some completions, which never happened before.",
        related=("rl_reward_zero_fraction", "rl_reward_function_zero_fraction", "rl_reward_dist"),
    ),
    condition("reward_function_dead", "RLRewardFunctionDead", Family.REWARD_FLAT, _TRAINERS).when(
        above("reward_functions_dead", warning(0.5)),
        summary="A reward function no longer tells completions apart, and the task is not solved.",
        about="{subject} no longer tells completions apart, and the task is not solved.",
        related=("rl_reward_function_mean", "rl_reward_function_std", "rl_reward_function_dist"),
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
    ),
    condition("reward_outlier", "RLRewardJump", Family.REWARD_JUMP).when(
        above("reward_outlier", warning(10.0)),
        summary="A reward is far outside all earlier rewards.",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_std", "rl_grad_norm"),
    ),
    condition("reward_below_range", "RLRewardCollapse", Family.REWARD_DROP, _TRAINERS).when(
        above("reward_below_range", warning(0.1, k=2, n=2)),
        summary="The mean reward is below every earlier reward.",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_mean"),
    ),
    condition("reward_drop", "RLRewardCollapse", Family.REWARD_DROP).when(
        above("reward_fall", warning(3.0), critical(REWARD_DIP)),
        summary="The reward has fallen far below its best, and stays there.",
        related=("rl_reward_mean", "rl_reward_function_mean", "rl_grad_norm", "rl_policy_ratio_dist"),
    ),
    condition("reward_weight_lost", "RLRewardJump", Family.REWARD_JUMP, _GROUPS).when(
        above("reward_weights_lost", info(0.5)),
        summary="A reward function no longer counts: its weight has become 0.",
        about="{subject} no longer counts: its weight has become 0.",
        related=("rl_reward_function_weight", "rl_reward_mean"),
    ),
    condition("reward_plateau", "RLRewardPlateau", Family.PLATEAU).when(
        below("reward_gain", warning(0.5, k=20, n=20), min_observations=_PLATEAU_FROM - REWARD_GAIN_FROM),
        summary="The reward has not risen since the run began.",
        related=("rl_reward_mean", "rl_reward_std", "rl_learning_rate", "rl_kl_per_token"),
    ),
    condition("weights_frozen", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        above("weights_still", warning(0.5, k=3, n=3), critical(0.5, k=8, n=8)),
        summary="The weights no longer change, although there is a gradient.",
        related=("rl_weight_changed_fraction", "rl_weight_norm", "rl_grad_norm", "rl_learning_rate"),
    ),
    condition("policy_frozen", "RLPolicyFrozen", Family.PLATEAU).when(
        below("kl_distance", warning(1e-6, k=10, n=10)),
        summary="The policy does not move.",
        related=("rl_kl_per_token", "rl_learning_rate", "rl_grad_norm"),
    ),
    condition("truncation", "RLLength", Family.TRUNCATION).when(
        above("truncation_rise", warning(0.3, k=8, n=10), critical(0.6, k=8, n=10)),
        summary="Completions are cut off at the length limit.",
        related=("rl_completion_truncated_fraction", "rl_completion_length_mean", "rl_completion_length_dist"),
    ),
    condition("eos_missing", "RLLength", Family.TRUNCATION, ("ppo",)).when(
        above("eos_missing", warning(0.3, k=3, n=3), critical(0.9, k=5, n=5)),
        summary="Responses have no end token.",
        related=("rl_eos_tokens", "rl_completion_length_dist"),
        stops=False,
    ),
    condition("length_low", "RLLength", Family.LENGTH).when(
        below("length", warning(0.3, k=5, n=5), vs=Baseline.START),
        summary="Completions have become much shorter.",
        related=("rl_completion_length_mean", "rl_completion_length_dist", "rl_reward_mean"),
        foretold_by=(
            *("kl_high", "kl_jump", "entropy_low", "entropy_collapsed", "value_loss_spike"),
            *("reward_flat", "reward_zeroed"),
        ),
    ),
    condition("length_high", "RLLength", Family.LENGTH).when(
        above("length", warning(3.0, k=5, n=5), vs=Baseline.START),
        summary="Completions have become much longer.",
        related=("rl_completion_length_mean", "rl_completion_truncated_fraction", "rl_reward_mean"),
    ),
    condition("same_length", "RLLength", Family.LENGTH).when(
        below("same_length", warning(0.02, k=5, n=5)),
        summary="All completions have the same length.",
        related=("rl_completion_length_dist", "rl_completion_length_std", "rl_entropy_per_token"),
    ),
    condition("step_slow", "RLStepsSlow", Family.SLOW).when(
        above("step_time", warning(4.0, k=8, n=10), vs=Baseline.RECENT, floor=0.5, min_observations=20),
        summary="Steps have become much slower.",
        about="Steps have become much slower, most of all in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds", "rl_completion_length_mean"),
    ),
    condition("step_stalled", "RLStepsSlow", Family.STALL).when(
        above("longest_pause", warning(30.0), vs=Baseline.RECENT, floor=60.0),
        summary="The run stood still for a while.",
        about="The run stood still for a while, in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds"),
    ),
    condition("nonfinite_eval_reward", "RLRewardLost", Family.EVALUATION, _GROUP).when(
        above("nonfinite_eval_reward", warning(0.0)),
        summary="A reward function returned NaN or infinity in an evaluation.",
        about="{subject} returned NaN or infinity in an evaluation.",
        related=("rl_eval_reward_function_unfiltered_mean", "rl_nonfinite_values_total"),
    ),
)

CONDITION_NAMED = {condition.name: condition for condition in CONDITIONS}

BY_ALERT = {
    alert: tuple(condition for condition in CONDITIONS if condition.alert == alert)
    for alert in dict.fromkeys(condition.alert for condition in CONDITIONS)
}
"""The conditions that raise each alert, in the order of the first of them."""
