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

_DIVERGED = (
    "The learning rate is too high for the model, or warms up too fast.",
    "fp16 or bf16 overflow in logits, logarithms or exponentials.",
    "A reward, advantage or KL that was infinite or NaN before it.",
)
STOP = (
    "Stop the run: the next optimizer step spreads NaN into the weights. Resume from the last good checkpoint, which "
    "`rl_last_good_checkpoint_step` names."
)
"""What to do first about NaN."""
_AFTER_NAN = (
    STOP,
    "Lower `learning_rate`, lengthen `warmup_steps`, keep `max_grad_norm` at 1 or below.",
    "Train in bf16 rather than fp16; compute the loss and log-probabilities in fp32.",
)


def _nonfinite(
    name: str,
    alert: str,
    what: str,
    causes: tuple[str, ...] = _DIVERGED,
    remedies: tuple[str, ...] = _AFTER_NAN,
    algorithms: tuple[str, ...] = (),
    related: tuple[str, ...] = (),
    about: str = "",
) -> Condition:
    return condition(name, alert, Family.NONFINITE, algorithms).when(
        above(name, critical(0.0)),
        summary=f"{what} is NaN or infinite.",
        about=about,
        meaning=f"{what} was NaN or infinite in the step that the alert names. Such values are counted before TRL "
        f"and transformers average or filter them away, so the log line may look fine. One such value is often the "
        f"only sign before sampling fails and the process dies.",
        causes=causes,
        remedies=remedies,
        source="any NaN or infinity is a fault",
        related=("rl_nonfinite_values_total", *related),
    )


_TOO_LARGE = (
    "The learning rate is too high.",
    "Too many updates on the same samples: `num_iterations`, `num_ppo_epochs`, `steps_per_generation`.",
    "Log-probabilities of sampler and trainer differ (another precision, temperature, or stale weights).",
)
_SMALLER = (
    "Lower `learning_rate`; warm up.",
    "GRPO, RLOO: lower `num_iterations` and `steps_per_generation`.",
    "PPO: lower `num_ppo_epochs`.",
    "Legacy PPO: set `target_kl` with `early_stopping=True`; `ratio_threshold` skips the worst mini-batches.",
)

_FAR = (
    "The KL penalty is off or too weak for the length of the run (`beta`, `kl_coef`).",
    "The reward pays for something that only a policy far from the reference does: reward hacking.",
    "A blow-up some steps before: look at ratio, approximate KL and gradient norm.",
)
_PENALISED = (
    "GRPO, RLOO: raise `beta`.",
    "PPO: raise `kl_coef`.",
    "Legacy PPO: raise `init_kl_coef`, or lower `target`.",
)
_NEARER = (
    *_PENALISED,
    "Read completions with a high reward.",
    "Resume from a checkpoint before the rise, with a lower `learning_rate`.",
    'If the run is meant to leave its reference, set `thresholds={"kl_high": ...}`.',
)

_PAYS = (
    "while the reward is clearly above its start and near its best, as long as the distance does not grow much faster "
    "than what is gained."
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

_CRITIC = (
    "The scale of the rewards or returns has changed.",
    "The value function's learning rate or `vf_coef` is too high.",
)

_NO_SIGNAL = (
    "The task is too hard, or too easy, for every prompt: all completions of a group get the same reward.",
    "The reward function is broken: it returns a constant.",
    "Entropy has collapsed: all completions are alike.",
)
_MORE_SIGNAL = (
    "Read completions and their rewards of one step.",
    "Mix in prompts of another difficulty.",
    "GRPO, RLOO: drop groups without spread (dynamic sampling, DAPO).",
    "GRPO, RLOO: raise `num_generations` or `temperature`.",
)

REWARD_GAIN_FROM = 60
"""The number of rewards before the signal `reward_gain` is computed: the first 30 and the last 30."""
_PLATEAU_FROM = 170
"""The number of rewards before a plateau is judged."""

REWARD_DIP = 4.0
"""So many spreads a fall of the reward counts at most while it may be a dip."""

_LONGER = (
    "GRPO, RLOO: raise `max_completion_length`, if the task needs it.",
    "PPO: raise `response_length`, if the task needs it.",
    "Penalize length, or reward ending: `missing_eos_penalty`, `mask_truncated_completions`, a length reward.",
)

CONDITIONS: tuple[Condition, ...] = (
    _nonfinite(
        "nonfinite_reward",
        "RLRewardNonFinite",
        "A reward",
        about="{subject} returned NaN or infinity.",
        related=("rl_reward_mean", "rl_reward_function_mean"),
        causes=(
            "A reward function divides by zero, or takes the logarithm of one.",
            "A reward model in fp16 overflows on long completions.",
            "A remote reward service answers with NaN when it fails.",
        ),
        remedies=(
            "GRPO, RLOO: let the reward function return None for samples that it cannot judge, and a number for all "
            "others.",
            "PPO, Legacy PPO: run the reward model in bf16 or fp32, and on completions no longer than it was trained "
            "on.",
            "GRPO, RLOO: what was learned from those groups is wrong, as NaN is averaged away: resume from a "
            "checkpoint from before, if there is one.",
        ),
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
        causes=(
            *_DIVERGED,
            "Weights: a checkpoint that was damaged, or merged wrongly; a low-precision optimizer state.",
            "Advantages: a value function that diverged; division by a spread of zero without an epsilon.",
        ),
        remedies=(
            *_AFTER_NAN,
            "`logging_nan_inf_filter` is on by default and logs a running mean of the loss instead: set it to False "
            "to see it in the log too.",
        ),
    ),
    condition("reward_lost", "RLRewardLost", Family.NONFINITE).when(
        above("reward_lost", critical(0.5)),
        summary="No completion of a step got a reward.",
        meaning="Every reward function returned None for every completion of the step. TRL logs the reward as None and "
        "trains on advantages of 0.",
        causes=("A reward function without a return statement.", "A remote reward service that fails for all samples."),
        remedies=("Run the reward functions on one batch by hand; let them raise where they fail.",),
        source="a step without any reward teaches nothing",
        related=("rl_undefined_values_total", "rl_reward_mean"),
    ),
    condition("reward_function_lost", "RLRewardLost", Family.NONFINITE, _GROUP).when(
        above("reward_function_lost", critical(0.5)),
        summary="A reward function no longer returns numbers.",
        about="{subject} no longer returns numbers.",
        meaning="The mean of a reward function is logged as None, although it was a number in each of the 10 log lines "
        "before. TRL writes None where all values were NaN or None. Judged from log lines only: at the tensor NaN and "
        "None are told apart.",
        causes=("The function returns NaN or None for every sample.",),
        remedies=("Run the function on one batch by hand.",),
        source="[runs]",
        related=("rl_reward_function_mean", "rl_undefined_values_total"),
    ),
    condition("prompts_stuck", "RLPromptsChanged", Family.DATA, _TRAINERS).when(
        above("prompts_stuck", warning(0.9, k=5, n=5)),
        summary="Every step trains on the same prompts.",
        meaning="All prompts of a rollout were in the rollout before as well, several times in a row, although the run "
        "began with others in each step.",
        causes=(
            "A data loader or sampler that returns the same batch.",
            "A cache, or a seed that is set in each step.",
        ),
        remedies=("Print the prompts of two steps; look at the sampler, its seed, and what was changed on resuming.",),
        source="live GRPO runs: 1 with a stuck loader, 0 to 0.25 in healthy ones",
        related=("rl_prompts_repeated_fraction", "rl_prompt_length_dist"),
    ),
    condition("prompts_short", "RLPromptsChanged", Family.DATA, _TRAINERS).when(
        below("prompt_shortness", warning(0.7, k=2, n=3)),
        summary="Prompts have become much shorter.",
        meaning="Every prompt of a step is shorter than the prompts of any step before were on average, by a third or "
        "more. They may have lost their content.",
        causes=("An empty column, a template without its placeholder, a limit that cuts the prompt.",),
        remedies=("Print a prompt as it is tokenized; compare it with one of the start of the run.",),
        source="live GRPO runs: a seventh where prompts lose their content; 1 and more in healthy ones, mixtures too",
        related=("rl_prompt_length_dist", "rl_prompt_end_changed_fraction"),
    ),
    condition("prompt_end_changed", "RLPromptsChanged", Family.DATA, _GROUPS).when(
        above("prompt_end_changed", warning(0.5, k=2, n=3)),
        summary="Prompts end with another token than before.",
        meaning="All prompts of the first rollouts ended with the same token, as a chat template leaves it. Most do "
        "not any more.",
        causes=("Another chat template, tokenizer or generation prompt.", "A limit that cuts prompts at their end."),
        remedies=("Print a prompt as it is tokenized; compare it with one of the start of the run.",),
        source="live GRPO runs: 1 with another template, 0 in healthy ones",
        related=("rl_prompt_end_changed_fraction", "rl_prompt_length_dist"),
    ),
    condition("loss_mask_wrong", "RLLossInputsWrong", Family.OBJECTIVE, _GROUPS).when(
        above("loss_mask_wrong", warning(0.25, k=2, n=3), critical(0.75, k=2, n=3)),
        summary="The loss mask does not fit the completions.",
        meaning="The mask that says which tokens the loss counts leaves out tokens that the policy has sampled, or "
        "counts padding.",
        causes=("A mask that is inverted, shifted, all ones, or of another batch.", "Code that changes the batch."),
        remedies=("Compare `completion_mask` with `completion_ids` of one batch in `_compute_loss`.",),
        source="live GRPO runs: 1 with a mask that is inverted or all ones, 0 in healthy ones",
        related=("rl_loss_mask_wrong_fraction", "rl_completion_length_dist"),
    ),
    condition("advantage_wrong", "RLLossInputsWrong", Family.OBJECTIVE, _TRAINERS).when(
        below("advantage_reward", warning(0.5, k=2, n=3), critical(0.0, k=4, n=5)),
        summary="Advantages do not follow the rewards they are computed from.",
        meaning="Within a group the completion with the higher reward has the higher advantage. Here it does not: the "
        "policy is taught something else than what is rewarded, or its opposite, and no log line shows it.",
        causes=(
            "Advantages in another order than the completions: a wrong reshape, shuffle or stride, an old batch.",
            "A wrong sign.",
            "An estimator of your own that does not grow with the reward.",
        ),
        remedies=("Compute the advantages of one group by hand from its rewards.",),
        source="live GRPO and RLOO runs: 1 in healthy ones, near 0 permuted, -1 with the wrong sign",
        related=("rl_advantage_reward_correlation", "rl_advantage_dist", "rl_reward_dist"),
    ),
    condition("old_logprobs_stale", "RLLossInputsWrong", Family.OBJECTIVE, _GROUPS).when(
        above("first_use", warning(3.0, k=2, n=3), vs=Baseline.START, floor=0.01),
        summary="The old log-probabilities are not those of the policy that sampled.",
        meaning="In the first step that uses a rollout the policy is still the one that sampled it: the ratio is 1. "
        "Here it is not: ratio and clipping are measured from another policy.",
        causes=("Old log-probabilities that are kept from an earlier step or batch.", "Dropout in the policy."),
        remedies=("Recompute them for each rollout, before its first update; set dropout to 0.",),
        source="live GRPO runs of two iterations: 0.02 to 0.05 with stale ones, 0 in healthy ones in fp32; "
        "against the start for bf16",
        related=("rl_first_use_log_ratio", "rl_policy_ratio_dist"),
    ),
    condition("reference_moved", "RLReferenceMoved", Family.OBJECTIVE, _TRAINERS).when(
        above("ref_changed", warning(0.001)),
        summary="The reference model changes although nothing asked for it.",
        meaning="Weights of the reference have changed between rollouts although `sync_ref_model` is off. KL to it no "
        "longer says how far the policy has gone, and the penalty holds nothing.",
        causes=("The reference shares weights with the policy, or is in the optimizer.", "A callback that copies."),
        remedies=("Load the reference by itself; set `requires_grad_(False)` and keep it out of the optimizer.",),
        source="live GRPO runs: 1 where the reference follows the policy, 0 in healthy ones",
        related=("rl_ref_weight_changed_fraction", "rl_kl_per_token", "rl_ref_logprob_dist"),
    ),
    condition("gradients_lost", "RLWeightsJumped", Family.OPTIMIZER, _TRAINERS).when(
        above("gradients_lost", warning(0.05, k=2, n=2)),
        summary="Some of the weights no longer get a gradient.",
        meaning="The gradient of some trained tensors is exactly 0 or missing, of more than in any of the first ten "
        "steps: the loss does not reach them any more, and the optimizer moves them by its momentum only.",
        causes=(
            "Code that detaches a part of the model, or a hook that sets gradients to 0.",
            "Experts that no token is sent to.",
        ),
        remedies=("Print the name of each parameter whose `grad` is None or 0 before the optimizer's step.",),
        source="live runs of GRPO, RLOO and both PPOs: 0 of all tensors in healthy ones",
        related=("rl_gradient_zero_fraction", "rl_weight_changed_fraction", "rl_grad_norm"),
    ),
    condition("weight_norm_jump", "RLWeightsJumped", Family.WEIGHTS, _TRAINERS).when(
        above("weight_norm_step", warning(8.0), vs=Baseline.RECENT, floor=0.08),
        summary="The norm of the trained weights has jumped.",
        meaning="From one rollout to the next the norm has changed by many times what it does otherwise: other weights "
        "are trained than before, or they were replaced.",
        causes=("A layer that was frozen or released.", "Weights that were loaded in mid-run.", "A very large update."),
        remedies=("Look at which parameters require gradients, and at what was loaded in this step.",),
        source="live GRPO runs: 16 % where a layer is frozen, below 2 % in healthy ones",
        related=("rl_weight_norm", "rl_weight_update_size", "rl_weight_changed_fraction"),
    ),
    condition("weights_moved", "RLWeightsJumped", Family.WEIGHTS, _TRAINERS).when(
        above("update_per_rate", warning(8.0), vs=Baseline.RECENT, min_observations=20),
        summary="The weights have moved much farther than an update moves them.",
        meaning="Between two rollouts the weights have moved many times farther than updates at this learning rate "
        "do. Something else has moved them.",
        causes=("A checkpoint that was loaded.", "A callback that averages or copies weights.", "Weight decay."),
        remedies=("Look at what loads or copies weights in this step.",),
        source="live GRPO runs: 47 times where an earlier checkpoint is loaded, at most 1.3 times in healthy ones",
        related=("rl_weight_update_size", "rl_learning_rate", "rl_weight_norm"),
    ),
    condition("optimizer_restarted", "RLWeightsJumped", Family.WEIGHTS, _TRAINERS).when(
        above("optimizer_restart", warning(0.5)),
        summary="The optimizer has lost its moments.",
        meaning="The optimizer's own count of its updates has fallen, or a resumed run begins with a count below half "
        "of its steps. Adam keeps that count with the moments of the gradients. Its first updates move each "
        "weight by the learning rate, whatever the gradient.",
        causes=("The optimizer was made anew, or the checkpoint was saved without its state (`save_only_model`).",),
        remedies=("Save and load the optimizer's state with the weights; lengthen `warmup_steps` after a resume.",),
        source="a count that falls is a fault; live runs of GRPO, RLOO and PPO",
        related=("rl_optimizer_updates", "rl_weight_update_size", "rl_learning_rate"),
    ),
    condition("optimizer_incomplete", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        above("optimizer_missing", warning(0.0, k=2, n=2), critical(0.99, k=3, n=3)),
        summary="Some of the trained weights are not in the optimizer.",
        meaning="Tensors of the model require a gradient, and are in no parameter group of the optimizer: nothing will "
        "change them. Judged where the optimizer had them before, and where it has none at all and no weight changes.",
        causes=(
            "An adapter, a layer or a value head that was added or wrapped after the optimizer was made.",
            "A parameter group that was replaced.",
        ),
        remedies=("Compare `trainer.optimizer.param_groups` with `trainer.model.parameters()`.",),
        source="a trained tensor without an optimizer is a fault",
        related=("rl_optimizer_missing_fraction", "rl_weight_changed_fraction"),
        foretold_by=("weights_frozen", "policy_frozen"),
    ),
    condition("weights_barely_change", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        below("weights_rounded", info(0.05, k=5, n=5)),
        summary="Hardly any weight changes: most updates are lost to rounding.",
        meaning="Of the trained weights less than 5 % change with an update. In bf16 an update below 0.4 % of a weight "
        "is rounded away. That is a property of the set-up: runs learn slowly like this, or not at all.",
        causes=("bf16 weights with a low learning rate, and no fp32 copy in the optimizer.",),
        remedies=("Keep an fp32 copy of the weights in the optimizer, or train an adapter in fp32.",),
        source="live GRPO runs: 0.1 % in bf16 at 1e-6, 90 % and more in fp32",
        related=("rl_weight_changed_fraction", "rl_learning_rate"),
    ),
    condition("gradient_dead", "RLNoSignal", Family.GRAD_DEAD, _TRAINERS).when(
        above("gradient_dead", warning(1.9, k=3, n=12), critical(5.5)),
        summary="The gradient is exactly zero although rewards differ.",
        meaning="Completions got different rewards, so that there is something to learn, and yet the gradient norm "
        "is exactly 0. Groups without a spread of reward can do that by chance. The value says how improbable that "
        "is: 7 is one in ten million. It adds up over steps in a row, by the share of such groups in each.",
        causes=(
            "The loss is NaN and its gradients were set to zero.",
            "Every completion is masked: `mask_truncated_completions` with all of them truncated.",
            "All trainable parameters are frozen, or an adapter is not active.",
        ),
        remedies=(
            "Look at `rl_nonfinite_values_total` and at the truncated fraction in the same steps.",
            "Raise `max_completion_length` where everything is truncated.",
        ),
        source="at most 1.1 in all healthy runs of [real], where a log line has the gradient of one step and the "
        "rewards of ten; three steps without such groups are 6",
        related=("rl_grad_norm", "rl_reward_std", "rl_completion_truncated_fraction"),
    ),
    condition("learning_rate_zero", "RLPolicyFrozen", Family.LR).when(
        below("learning_rate_share", warning(1e-6, k=10, n=10)),
        summary="The learning rate is zero.",
        meaning="The learning rate is a vanishing part of its highest so far, for many log lines in a row: nothing is "
        "learned any more. A log that has 0 from the first line on may have been rounded, and is not judged.",
        causes=(
            "A schedule that ended before the run: `max_steps` of the scheduler is not that of the run.",
            "A resumed run whose scheduler was restored at its end.",
            "A typing error in `learning_rate`.",
        ),
        remedies=("Check `lr_scheduler_type`, `warmup_steps` and `max_steps`.",),
        source="a millionth is below the resolution of bf16 weights",
        related=("rl_learning_rate",),
    ),
    condition("learning_rate_jump", "RLLearningRateJump", Family.LR).when(
        above("learning_rate", warning(5.0), vs=Baseline.PREVIOUS, min_observations=2),
        summary="The learning rate has jumped.",
        meaning="The learning rate is several times that of the log line before.",
        causes=(
            "A schedule with restarts, or two schedulers at work.",
            "A callback or a hyper-parameter search that sets it.",
        ),
        remedies=("Find what set the rate: the scheduler, a callback, or a resume without its state.",),
        source="[runs]; a warm-up from 0 grows by less once three values are known",
        related=("rl_learning_rate",),
    ),
    condition("grad_spike", "RLGradientHigh", Family.GRAD).when(
        above(
            "grad_norm", warning(100.0, learning="recent gradients"), vs=Baseline.P90, floor=1e-6, min_observations=20
        ),
        summary="The gradient norm has spiked.",
        meaning="One gradient norm far above the run's own recent past. Clipping and Adam often absorb a single one; "
        "the step is named so that it can be looked at. Not judged while no rewards differed in most of that past.",
        causes=(
            "An outlier among the rewards or advantages.",
            "A batch with a very long or odd completion.",
            "The beginning of a divergence: see whether it repeats.",
        ),
        remedies=("Keep `max_grad_norm` at 1 or below.", "Clip the rewards, or scale them."),
        source="[runs], [real]: gradients of healthy runs are bimodal and heavy-tailed, so the median is no yardstick; "
        "single norms of 32 and of 53 times the 90th percentile were harmless",
        related=("rl_grad_norm", "rl_reward_std"),
    ),
    condition("grad_explosion", "RLGradientHigh", Family.GRAD).when(
        above("grad_norm", critical(5.0, k=3, n=5, learning="recent gradients"), vs=Baseline.P90, floor=1e-6),
        summary="The gradient norm explodes.",
        meaning="The gradient norm is far above the run's own recent past, in most of the last steps. Not judged while "
        "no rewards differed in most of that past: its gradients are those of the penalty alone.",
        causes=(
            "The learning rate is too high.",
            "The scale of the reward has changed.",
            "Sampler and trainer disagree about the policy [verl].",
        ),
        remedies=(
            "Lower `learning_rate`; keep `max_grad_norm`.",
            "Compare `rl_reward_std` and the sampling mismatch in the same steps.",
        ),
        source="[runs]",
        related=("rl_grad_norm", "rl_reward_std", "rl_sampling_logp_difference_mean"),
    ),
    condition("ratio_high", "RLRatioHigh", Family.POLICY_STEP).when(
        above("ratio", warning(2.0, k=2, n=2), critical(10.0)),
        summary="The probability ratio of new and old policy is far above 1.",
        meaning="The mean ratio of the policy to the one that sampled is far above 1. Updates are too drastic for "
        "the data that they are computed from. TRL logs no ratio for GRPO; here it is seen at the tensor. Critical "
        "in a single step already.",
        causes=_TOO_LARGE,
        remedies=_SMALLER,
        source="[trl]: about 1; 2.0 and 1000 are too drastic; ratio_threshold is 10",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl", "rl_clip_ratio_region_mean"),
        stops=False,
    ),
    condition("ratio_tail", "RLRatioHigh", Family.POLICY_STEP).when(
        above("ratio_tail", warning(0.02, k=2, n=3), critical(0.2)),
        summary="Many tokens have a probability ratio below 0.1 or above 10.",
        meaning="More than a few tokens of a step have a ratio below 0.1 or above 10. The mean can look well "
        "meanwhile.",
        causes=_TOO_LARGE,
        remedies=_SMALLER,
        source="[trl] for 0.1 and 10; the shares from [runs]",
        related=("rl_policy_ratio_dist",),
    ),
    condition("ratio_low", "RLRatioLow", Family.POLICY_STEP).when(
        below("ratio", warning(0.6, k=2, n=2), vs=Baseline.START),
        summary="The probability ratio of new and old policy is far below its own level.",
        meaning="The mean ratio has fallen far below its level at the start of the run: the policy gives its own "
        "samples much less probability than when it drew them.",
        causes=_TOO_LARGE,
        remedies=_SMALLER,
        source="[trl]: 0.1 is too small; relative, since modern PPO logs 0.5 for 1 in some healthy runs",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("approxkl_spike", "RLApproxKLHigh", Family.POLICY_STEP, _PPO).when(
        above("approxkl", warning(1.0)),
        summary="One update has moved the policy very far.",
        meaning="The approximate KL between the policy before and after an update was huge, once. A blow-up often "
        "shows in one or two steps only, and looks calm afterwards.",
        causes=_TOO_LARGE,
        remedies=_SMALLER,
        source="[ranges]: 0.01 to 0.05; [37] below 0.02; single heavy-tailed values are common, hence a warning",
        related=("rl_policy_approxkl", "rl_policy_clipfrac"),
    ),
    condition("approxkl_high", "RLApproxKLHigh", Family.POLICY_STEP, _PPO).when(
        above("approxkl", warning(0.2, k=3, n=3), critical(1.0, k=3, n=5)),
        summary="Updates move the policy too far.",
        meaning="The approximate KL between the policy before and after the updates of a step stays too high.",
        causes=_TOO_LARGE,
        remedies=_SMALLER,
        source="[ranges]: 0.01 to 0.05; four times that, in a row, since healthy values are heavy-tailed [runs]",
        related=("rl_policy_approxkl", "rl_policy_clipfrac", "rl_policy_ratio_dist"),
        stops=False,
    ),
    condition("clipfrac_high", "RLClipFractionHigh", Family.POLICY_STEP).when(
        above("clipfrac", warning({"token": 0.3, "sequence": 0.5}, k=5, n=12)),
        summary="Too much of the updates is clipped.",
        meaning="A large share of the tokens (of the sequences in RLOO) is clipped, in many of the last steps. Not in "
        "a row: the first update on fresh samples never clips. GSPO clips most of its sequences by design, and is not "
        "judged.",
        causes=(*_TOO_LARGE, "A clip range that is too narrow (`epsilon`, `cliprange`)."),
        remedies=_SMALLER,
        source="[ranges] 0.2; TRL's old guide calls 0.3 to 0.6 usual; [miles] above 0.5 bad",
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
        meaning="The difference between the trainer's and the sampler's log-probabilities of tokens has become many "
        "times what it was in this run. What is trained on is no longer drawn from the policy.",
        causes=(
            "The sampler has another temperature, or samples greedily.",
            "The sampler has stale weights: it was not synchronized, or a copy is sampled from.",
        ),
        remedies=("Compare the settings and the weights of sampler and trainer at this step.",),
        source="live runs of modern PPO: below 1e-5 in fp32, 0.1 to 0.2 with such a sampler; of real GRPO runs two "
        "broken ones have it, and no healthy one",
        related=("rl_sampling_logp_difference_mean", "rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("sampler_differs", "RLSamplerMismatch", Family.KL_NEGATIVE).when(
        above("sampler_gap", warning(0.05)),
        summary="Completions are not drawn from the policy being trained.",
        meaning="Under the policy that drew them, the mean log-probability of tokens is minus the mean entropy. Over "
        "the last rollouts it is not, by more than noise: tokens are likelier than they should be (a greedier "
        "sampler), or less likely. The number is that difference less three standard errors. With `top_p`, `top_k`, "
        "`min_p` or a repetition penalty that is on it is not judged.",
        causes=(
            "The sampler has another temperature than the trainer, or is greedy (`generation_kwargs`, a server).",
            "The sampler has stale weights.",
            "Dropout is on in the policy, or its precision differs from the sampler's.",
        ),
        remedies=(
            "Compare the generation settings with `temperature` of the trainer.",
            "Check that the sampler has the newest weights.",
            "If the sampler is meant to differ, set `sampler_differs = false`.",
        ),
        source="live runs: within 0.011 at the median in healthy ones, 0.16 to 0.32 with another temperature, a greedy "
        "or a stale sampler",
        related=("rl_logprob_dist", "rl_entropy_per_token_dist", "rl_policy_ratio_dist"),
    ),
    condition("completions_copied", "RLSamplerMismatch", Family.KL_NEGATIVE, _GROUPS).when(
        above("copies_excess", warning(COPIES_EXCESS, k=2, n=3)),
        summary="Completions are copies of each other far more often than the policy would draw them.",
        meaning="Completions of one prompt are equal, token by token. How often that is chance follows from their "
        "probability under the policy; here it is far more. The number is the difference of both shares. With `top_p`, "
        "`top_k`, `min_p` or a repetition penalty that is on it is not judged.",
        causes=(
            "A greedy sampler, a low temperature, or a seed that each completion gets anew.",
            "One completion that is handed out for the whole group: a cache, or n = 1.",
        ),
        remedies=("Compare the generation settings with `temperature`; look at the completions of one prompt.",),
        source="live GRPO and RLOO runs: within 0.1 in healthy ones, 0.4 to 1 with copies or a greedy sampler",
        foretold_by=("reward_function_blind",),
        related=("rl_completion_copied_fraction", "rl_completion_copied_expected_fraction", "rl_logprob_dist"),
    ),
    condition("sampling_ratio_low", "RLSamplerMismatch", Family.KL_NEGATIVE, _GROUP).when(
        below("sampling_ratio", warning(0.3, k=5, n=5)),
        summary="Importance sampling throws most of the samples away.",
        meaning="The mean ratio of the trainer's to the sampler's probability stays far below 1.",
        causes=("Sampler and trainer disagree: see the mismatch of their log-probabilities.",),
        remedies=("Synchronize weights more often; use the same precision on both sides.",),
        source="[verl] below 0.5 a token; per sequence 0.4 to 0.7 is normal (TRL issue 5814)",
        related=("rl_importance_sampling_ratio_mean",),
    ),
    condition("kl_at_start", "RLKLAtStart", Family.KL_HIGH).when(
        above(
            "kl_first",
            info({"k1": KL_AT_START, "k3": KL_AT_START, "sequence": 5.0}),
            critical({"k1": 2.0, "k3": 2.0, "sequence": 20.0}),
        ),
        summary="The policy differs from the reference before any update.",
        meaning="The very first KL of the run is far from 0. Policy and reference are the same model then, so that "
        "something between them differs. Another attention kernel, fp8 or a merged adapter give a few tenths: that is "
        "a property of the set-up, and information. A first log line of several steps is not judged.",
        causes=(
            "The reference is another model, another revision or another precision.",
            "Dropout is on, or padding is on the wrong side, in one of the two forward passes.",
            "A chat template or tokenizer that differs.",
        ),
        remedies=(
            "Compare the log-probabilities of one prompt under both models by hand.",
            "If a trained policy is meant to start from an older reference, set `kl_at_start = false`. "
            "Resumed runs are not judged.",
        ),
        source="KL of a policy to itself is 0; runs that learn begin at up to 0.72 nats a token [real], another "
        "reference at 5.7 [runs]",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_ref_logprob_dist"),
    ),
    condition("reference_differs", "RLKLAtStart", Family.KL_HIGH, _TRAINERS).when(
        above("kl_first_seen", info(0.02)),
        summary="The reference is not quite the policy that training began with.",
        meaning="The very first KL, of the tokens themselves and before any update, is not 0. In fp32 it is exactly 0 "
        "where both are the same model; bf16 and other attention kernels give some thousandths.",
        causes=("The reference is another checkpoint of the same model.", "The policy goes on from a checkpoint."),
        remedies=("Compare the paths from which policy and reference are loaded.",),
        source="live GRPO runs: 0.041 with an earlier checkpoint as reference, 0 in healthy ones in fp32",
        related=("rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_dropout", "RLReferenceNoisy", Family.KL_HIGH, ("ppo",)).when(
        above("ref_dropout", warning(0.0)),
        summary="Dropout is on in the reference.",
        meaning="The reference model is in training mode and its configuration has dropout: it gives another "
        "probability each time that it is asked. KL to it is partly noise, and so is the penalty.",
        causes=(
            "`train()` was called on the reference, or `eval()` never was; some loaders leave it on.",
            "The reference is the policy without its adapter, and the base model has dropout.",
        ),
        remedies=("Call `eval()` on the reference.", "Set the dropout of its configuration to 0."),
        source="a reference is deterministic; legacy PPO puts it into evaluation mode in each step by itself",
        related=("rl_ref_dropout", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_noisy", "RLReferenceNoisy", Family.KL_HIGH, _GROUP).when(
        above("ref_noise", warning(0.02, k=3, n=5)),
        summary="The reference contradicts itself: dropout is on in it.",
        meaning="For the same token after the same prompt the reference gives different log-probabilities, within one "
        "step. A reference in evaluation mode does not, whatever its precision. KL to it is mostly noise, and so is "
        "the penalty.",
        causes=(
            "The reference is in training mode, with dropout in its configuration.",
            "The reference is the policy without its adapter, and the base model has dropout.",
        ),
        remedies=("Set `disable_dropout=True`.", "Call `eval()` on the reference."),
        source="live GRPO and RLOO runs: 0 in healthy ones; a margin for bf16, whose kernels differ with the batch",
        related=("rl_ref_logprob_noise", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("kl_high", "RLKLHigh", Family.KL_HIGH).when(
        above(
            "kl",
            warning({"k1": 1.2, "k3": 3.0, "sequence": 10.0}, k=3, n=5, learning="distance"),
            critical({"k1": 4.0, "k3": 5.0, "sequence": 50.0}, k=6, n=10),
        ),
        summary="The policy is far from the reference.",
        meaning="The KL divergence to the reference stays above its limit. The limit is per token, and higher for "
        "the k3 estimator of GRPO, whose tail is heavier; per sequence where no length is known. There is no warning "
        f"of a distance that pays: {_PAYS}",
        causes=_FAR,
        remedies=_NEARER,
        source="[trl] 0 to 10 a sequence; the least portable of all limits: set it to what your runs do",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_kl_per_token_dist", "rl_reward_mean"),
    ),
    condition("kl_jump", "RLKLHigh", Family.KL_HIGH).when(
        above(
            "kl",
            warning(6.0, k=4, n=5, learning="growth"),
            critical(10.0, k=12, n=15, learning="growth"),
            vs=Baseline.BEFORE,
            floor=KL_FLOOR,
            min_observations=SETTLED,
        ),
        summary="The KL divergence to the reference has jumped.",
        meaning="KL is many times what it was 20 steps ago, and no longer small: the policy is drifting off. "
        f"Not judged in the first {SETTLED} steps, in which it may grow from 0 by any factor. A reward that has gained "
        "twice as much as 20 steps ago doubles the limit. If it has been found since then, and there was nothing to "
        "learn from before, there is no limit yet.",
        causes=_FAR,
        remedies=_NEARER,
        source="[real]: healthy runs grow at most fourfold once they have left 0; 0.25 nats a token is what two thirds "
        "of them never pass",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_grad_norm"),
    ),
    condition("reward_hacking", "RLRewardHacking", Family.KL_HIGH).when(
        above("hacking", critical(5.0)),
        summary="The reward rises while KL runs away.",
        about="{subject} rises while KL runs away.",
        meaning="Within 20 steps the reward has jumped by more than 1.5 of its standard deviations, and the KL "
        "divergence to several times what it was: what is gained may be gained by leaving the reference, not by being "
        "better. A reward of which most groups had none 40 steps ago has been found since: that is no jump.",
        causes=("The reward can be had in a way that nobody meant.", *_FAR[:1]),
        remedies=(
            "Read completions with a high reward.",
            "Evaluate with a measure that is not trained on.",
            *_PENALISED,
        ),
        source="Gao et al., Scaling Laws for Reward Model Overoptimization (2022); both together in no run of [real]",
        related=("rl_reward_mean", "rl_kl_per_token", "rl_kl_per_sequence", "rl_completion_length_mean"),
        foretold_by=("kl_high", "kl_jump"),
        level="kl",
    ),
    condition("kl_negative", "RLKLNegative", Family.KL_NEGATIVE, _NOT_K3).when(
        below(
            "kl_signed",
            warning({"sequence": -1.0, "k1": -0.05}, k=2, n=2),
            critical({"sequence": -1.0, "k1": -0.05}, k=5, n=5),
        ),
        summary="The KL divergence is clearly below zero.",
        meaning="A KL divergence cannot be negative; its k1 estimate is, clearly and lastingly, only where the samples "
        "were not drawn from the policy that is scored.",
        causes=(
            "Generation with another temperature, top-k or top-p than 1, 0 and 1, or with constraints.",
            "A sampler with stale weights.",
            "Padding or attention masks that differ between generation and scoring.",
        ),
        remedies=(
            "Legacy PPO: set `generation_kwargs` to `top_k=0`, `top_p=1.0`, `do_sample=True`, with no `min_length`.",
            "Check that the sampler has the newest weights.",
        ),
        source="[trl] FAQ: negative KL; below -1 a sequence, since rounding and noise reach further than 0 [runs]",
        related=("rl_kl_per_sequence", "rl_kl_per_token", "rl_policy_ratio_dist"),
        stops=False,
    ),
    condition("kl_coef_runaway", "RLKLCoefficient", Family.KL_COEF, ("ppo-legacy", "online-dpo")).when(
        above("kl_coef", warning(3.0), critical(30.0), vs=Baseline.START),
        summary="The adaptive KL coefficient runs away.",
        meaning="The coefficient of the KL penalty is many times its level at the start. Soon the penalty is all "
        "that is optimized.",
        causes=("`target` is below the KL that the task needs.", "KL is high for another reason: see it first."),
        remedies=("Raise `target` or `horizon`; set `adap_kl_ctrl=False`.",),
        source="[trl]: the coefficient rises before an instability; the factors from [runs]",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_non_score_reward_per_token"),
        stops=False,
    ),
    condition("kl_coef_lost", "RLKLCoefficient", Family.OBJECTIVE, (*_PPO, "grpo", "rloo", "online-dpo")).when(
        below("kl_coef_share", warning(KL_COEF_LOST), critical(-KL_COEF_LOST)),
        summary="The coefficient of the KL penalty is 0 or negative.",
        meaning="The coefficient of the KL penalty is 0, or a vanishing part of its highest value: nothing holds the "
        "policy to the reference any more. Below 0 the penalty has the wrong sign, and pays for leaving the reference.",
        causes=(
            "A schedule, a callback or a resumed state that sets it.",
            "Legacy PPO multiplies its adaptive coefficient: once it is 0 it stays 0.",
        ),
        remedies=(
            "GRPO, RLOO: set `beta` again.",
            "PPO: set `kl_coef` again.",
            "Legacy PPO: set `kl_ctl.value` again.",
        ),
        source="live runs of GRPO, RLOO and both PPO trainers; the fastest decay of TRL's controller needs 460,000 "
        "episodes at its default horizon",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("kl_coef_stuck", "RLKLCoefficient", Family.KL_COEF, ("ppo-legacy",)).when(
        above("kl_coef_stuck", warning(4.5)),
        summary="The adaptive KL coefficient no longer adapts.",
        meaning="A coefficient that used to change in each step has not changed for some steps, although it was "
        "rising and KL has not come down, or although KL has doubled: the penalty is at its bound.",
        causes=("A bound on the coefficient that is too low.", "The controller is no longer updated."),
        remedies=("Raise the bound; lower `learning_rate`.", "Call `kl_ctl.update()` with each step."),
        source="live runs of legacy PPO; TRL's controller changes the coefficient in each step",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("entropy_low", "RLEntropyLow", Family.ENTROPY_LOW).when(
        below("entropy", warning(0.2, k=3, n=5), vs=Baseline.START),
        summary="Entropy has fallen far below its start.",
        meaning="The entropy of the next token has fallen to a small part of its level at the start of the run. A "
        "slow decline is part of learning; a fast one ends exploration. Where a trainer logs no entropy, minus the "
        "log-probability of the sampled tokens stands in.",
        causes=(
            "The policy exploits early: the reward is easy, or sparse and lucky.",
            "The upper clip range cuts off rare tokens (DAPO: raise `epsilon_high` to 0.28).",
            "The learning rate is too high.",
        ),
        remedies=(
            "GRPO, RLOO: raise `epsilon_high`, `temperature` or `beta`.",
            "PPO: raise `temperature` or `kl_coef`.",
            "Lower `learning_rate`.",
            'If the policy is meant to become certain, set `thresholds={"entropy_low": 0.2}`.',
        ),
        source="[dapo]; a fall by half is the usual warning, but healthy runs in [real] fall to a quarter, one to 0.11",
        related=("rl_entropy_per_token", "rl_logprob_dist", "rl_reward_std"),
    ),
    condition("entropy_collapsed", "RLEntropyLow", Family.ENTROPY_LOW).when(
        below("entropy", critical(0.04, k=5, n=5), vs=Baseline.START),
        summary="Entropy has collapsed: the policy is deterministic.",
        meaning="The entropy of the next token is as good as 0, measured by its start: each prompt has one answer, all "
        "completions of a group are alike, and nothing more can be learned. Instruct models begin at 0.03 to 0.3 nats "
        "and learn well, so that no number of nats is too low by itself.",
        causes=(
            "An update that was too large, some steps before: look at ratio and gradient norm.",
            "The slow decline was not stopped.",
        ),
        remedies=("Resume from a checkpoint before the fall, with a lower `learning_rate`.",),
        source="[dapo]; the lowest share of its start in a healthy run of [real] is 0.11",
        related=("rl_entropy_per_token", "rl_entropy_per_token_dist", "rl_reward_zero_std_fraction"),
    ),
    condition("entropy_high", "RLEntropyHigh", Family.ENTROPY_HIGH).when(
        above("entropy", warning(4.0, k=5, n=5), vs=Baseline.START, floor=0.6),
        summary="Entropy grows.",
        meaning="The entropy of the next token stays far above its level at the start of the run: the policy is "
        "falling apart into noise.",
        causes=(
            "An entropy bonus that is too strong.",
            "Updates that are too large, or negative advantages that push probability everywhere.",
        ),
        remedies=("Lower `entropy_coef` and `learning_rate`; look at samples.",),
        source="[dapo]: neither collapse nor unbounded growth; healthy runs of [real] grow to 2.6 times their start, "
        "or stay below 0.6 nats",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("entropy_exploded", "RLEntropyHigh", Family.ENTROPY_HIGH).when(
        above("entropy", critical(4.0, k=12, n=15), vs=Baseline.START, floor=1.5),
        summary="Entropy has exploded: the policy writes noise.",
        meaning="The entropy of the next token has been far above its level at the start of the run for most of the "
        "last 15 steps, and is high by itself: many tokens are as likely as the best one.",
        causes=(
            "Updates that are too large, or negative advantages that push probability everywhere.",
            "An entropy bonus that is too strong.",
        ),
        remedies=(
            "Resume from a checkpoint before the rise, with a lower `learning_rate` and `entropy_coef`.",
            "Read completions: are they still language?",
        ),
        source="healthy runs of [real] grow to 2.6 times their start, or stay below 0.6 nats; planted rises to 6 times",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("collapsed", "RLEntropyLow", Family.ENTROPY_LOW).when(
        above("collapse_signs", critical(2.0, k=8, n=10)),
        summary="The policy has collapsed: entropy fell, and other signals with it, without any gain in reward.",
        meaning="Entropy is below 0.35 of its start, and at least two of three others hold beside it: completions are "
        "below 0.3 of their first length, most gradients are exactly 0, or nearly no group has a spread of reward. "
        "None of them is a fault by itself, and a task that is solved looks like this too: it is not judged while the "
        "reward is clearly above its start.",
        causes=(
            "The policy has found a short answer that always gets the same reward.",
            "The learning rate is too high.",
            "The task is too hard for the model: no completion of a group is better than another.",
        ),
        remedies=(
            "Read completions of the first and of the newest steps.",
            "Start again with a lower `learning_rate`, a stronger KL penalty and other prompts.",
        ),
        source="one broken run of a further set of public logs; no healthy run of [real] or [runs] has three signs",
        related=("rl_entropy_per_token", "rl_completion_length_mean", "rl_grad_norm", "rl_reward_zero_std_fraction"),
    ),
    condition("value_loss_spike", "RLValueLossSpike", Family.VALUE, _PPO).when(
        above("value_loss", warning(20.0), critical(5.0, k=3, n=5), vs=Baseline.P90, floor=1e-6),
        summary="The value loss spikes.",
        meaning="The value loss is far above the run's own recent past, once (a warning) or in most of the last "
        "steps (critical): the critic no longer predicts the returns, so the advantages are wrong too.",
        causes=_CRITIC,
        remedies=(
            "Clip or scale rewards (`score_clip`, `use_score_scaling`, `whiten_rewards`).",
            "Lower `vf_coef` or the learning rate; `cliprange_value` bounds what one update can do.",
        ),
        source="[trl]: it will spike or be NaN when not going well; the factors from [runs]",
        related=("rl_value_loss", "rl_return_mean", "rl_value_mean"),
        stops=False,
    ),
    condition("advantage_flat", "RLNoSignal", Family.ADVANTAGE, _PPO).when(
        below("advantage_spread", warning(0.01), critical(0.01, k=3, n=3)),
        summary="Advantages do not differ: there is nothing to learn from.",
        meaning="All tokens of a step have as good as the same advantage. PPO whitens advantages to a standard "
        "deviation of 1, so that they differ in each step whatever the rewards are.",
        causes=(
            "Whitening, masking or clipping that was changed and leaves nothing.",
            "Rewards, KL and values that are all constant: a value function of 0 without a KL penalty.",
        ),
        remedies=("Look at rewards, values and returns of the same step; compute the advantages of a batch by hand.",),
        source="live runs of both PPO trainers: 2 to 9 in each healthy step",
        related=("rl_advantage_dist", "rl_reward_std", "rl_value_dist", "rl_return_dist"),
    ),
    condition("advantage_dead", "RLNoSignal", Family.ADVANTAGE, _GROUP).when(
        above("advantage_dead", warning(0.5), critical(0.5, k=3, n=3)),
        summary="Advantages are all the same although rewards differ.",
        meaning="Completions of one group got different rewards, and yet all advantages of the step are the same. What "
        "is learned is the KL penalty, or nothing.",
        causes=(
            "Code between reward and advantage that overwrites, masks or clips it.",
            "A reward so large or small that its differences are lost in rounding.",
        ),
        remedies=("Compute the advantages of one group by hand from its rewards.",),
        source="live GRPO and RLOO runs: rewards that differ always give advantages that do",
        related=("rl_advantage_dist", "rl_reward_group_range_dist", "rl_reward_std", "rl_kl_per_token"),
    ),
    condition("advantage_off_centre", "RLAdvantageOffCentre", Family.ADVANTAGE, _TRAINERS).when(
        above("advantage_offset", warning(0.2, k=5, n=5)),
        summary="Advantages are not centered.",
        meaning="The mean advantage stays away from 0. It is whitened over the batch, or relative to the group: its "
        "mean should be near 0.",
        causes=(
            "The value function lags behind rewards that rise fast.",
            "Whitening over something else than the tokens that are trained on.",
        ),
        remedies=("Look at value loss and returns; whiten rewards (`whiten_rewards`).",),
        source="[ranges]: centered near 0",
        related=("rl_advantage_dist", "rl_advantage_mean"),
    ),
    condition("reward_flat", "RLNoSignal", Family.REWARD_FLAT).when(
        above("reward_flat", warning(7.0), critical(10.0)),
        summary="Rewards do not differ: there is nothing to learn from.",
        meaning="Nearly all groups (or the whole batch) have no spread of reward, step after step, and the reward is "
        "not at its best. Advantages are 0, and so is the policy gradient. The value says how improbable that is "
        "(7 is one in ten million), given how often it happened in this run before: with one group a step, it happens "
        "every other step in runs that learn. Rewards that also stay the same to the last digit count more.",
        causes=_NO_SIGNAL,
        remedies=_MORE_SIGNAL,
        source="[dapo]: drop groups of all 0 or all 1; healthy runs in [real] reach 6.3",
        related=("rl_reward_mean", "rl_reward_std", "rl_reward_zero_std_fraction", "rl_entropy_per_token"),
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
    ),
    condition("solved", "RLRewardSolved", Family.REWARD_FLAT).when(
        above("solved", info(0.9, k=8, n=10)),
        summary="Rewards do not differ, at the best reward of the run: the task is solved.",
        meaning="As `reward_flat`, but the reward has clearly risen and is at its best: every completion gets it.",
        causes=("The policy has learned the task.",),
        remedies=("End the run, or give it harder prompts.",),
        source="[runs]",
        related=("rl_reward_mean", "rl_reward_zero_std_fraction"),
    ),
    condition("reward_function_blind", "RLRewardFunctionDead", Family.REWARD_FLAT, _GROUPS).when(
        above("reward_functions_blind", warning(0.5)),
        summary="A reward function no longer tells the completions of a prompt apart.",
        about="{subject} no longer tells the completions of a prompt apart.",
        meaning="In every group a reward function gives all completions the same, several steps in a row, while groups "
        "differ; before that it did not. It reads something else than the completion. The policy learns nothing from "
        "it.",
        causes=(
            "The function is handed the prompt, or the completions of another step, in place of the completion.",
            "A cache by prompt.",
        ),
        remedies=("Call the function with two different completions of one prompt.",),
        source="live GRPO runs: 1 from the step of the fault on, once in a row at most in healthy ones",
        related=("rl_reward_function_flat_fraction", "rl_reward_function_dist"),
    ),
    condition("reward_zeroed", "RLRewardFunctionDead", Family.REWARD_FLAT, _TRAINERS).when(
        above("reward_zeros", warning(0.08)),
        summary="A reward is exactly 0 for some completions, which never happened before.",
        about="{subject} is exactly 0 for some completions, which never happened before.",
        meaning="The share of completions with a reward of exactly 0, a mean of three steps, where that was seldom in "
        "the first steps of the run. It is not the highest reward.",
        causes=("A reward model or service that fails for some samples, and gives 0 for an error.", "A parser."),
        remedies=("Find the completions with a reward of 0; return None for samples that cannot be judged.",),
        source="live runs: 0.2 where every fifth reward is lost, below 0.01 before that",
        related=("rl_reward_zero_fraction", "rl_reward_function_zero_fraction", "rl_reward_dist"),
    ),
    condition("reward_function_dead", "RLRewardFunctionDead", Family.REWARD_FLAT, _TRAINERS).when(
        above("reward_functions_dead", warning(0.5)),
        summary="A reward function no longer tells completions apart, and the task is not solved.",
        about="{subject} no longer tells completions apart, and the task is not solved.",
        meaning="A reward function that used to give different values now gives the same value to every completion, "
        "for too many steps to be chance. It has given better values before, or got there in one jump, which learning "
        "does not do: it teaches nothing. A function at its best value counts as solved.",
        causes=(
            "What it looks for never appears in a completion.",
            "Its parser fails, or the service behind it answers with a default.",
            "All completions are alike: look at entropy.",
        ),
        remedies=("Call the reward function on a few completions by hand.", "Give a reward for partial success."),
        source="live GRPO, RLOO and PPO runs, and [runs]: 8 observations or more, a chance below 0.01 %",
        related=("rl_reward_function_mean", "rl_reward_function_std", "rl_reward_function_dist"),
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
    ),
    condition("reward_outlier", "RLRewardJump", Family.REWARD_JUMP).when(
        above("reward_outlier", warning(10.0)),
        summary="A reward is far outside all earlier rewards.",
        meaning="One reward of a step, or a few, lie outside everything that the reward function gave before, by more "
        "than ten times its range (taken as 1 at least). A mean over the batch hides this, but a single such reward "
        "can make up a whole update.",
        causes=(
            "A division by almost zero, or a sentinel (-1000, 1e6) that was meant for an error.",
            "A reward model far off its ground.",
            "A bonus that is met for the first time and is much larger than all other rewards.",
        ),
        remedies=(
            "Find the completion with that reward: `log_completions=True`.",
            "Clip rewards in the function; scale them (`scale_rewards`).",
        ),
        source="live GRPO, RLOO and PPO runs: 0 to 1.3 in healthy ones, 12 and more for outliers of 100",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_std", "rl_grad_norm"),
    ),
    condition("reward_below_range", "RLRewardDrop", Family.REWARD_DROP, _TRAINERS).when(
        above("reward_below_range", warning(0.1, k=2, n=2)),
        summary="The mean reward is below every earlier reward.",
        meaning="The mean reward of a step is lower than the lowest reward that any completion got before, by more "
        "than a tenth of the range of all of them. Learning does not do that in one step.",
        causes=("The sign of a reward has changed.", "Its scale has changed, or a penalty was added."),
        remedies=("Look at each reward function before and after this step.",),
        source="live GRPO runs: 1.1 to 1.3 with the wrong sign, below 0 in healthy ones",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_mean"),
    ),
    condition("reward_drop", "RLRewardDrop", Family.REWARD_DROP).when(
        above("reward_fall", warning(3.0), critical(REWARD_DIP)),
        summary="The reward has fallen far below its best, and stays there.",
        meaning="The level of the reward, a median over 15 steps, is below the best level of the run by several "
        "standard deviations of its noise from step to step, and by more than 0.4 of the range of all levels. What "
        "costs less than 0.7 of all that was gained may be a dip that comes back: it is critical after 100 steps.",
        causes=(
            "An update that was too large: look at ratio, KL and gradient norm just before.",
            "Another kind of prompts in the data.",
            "A reward function or service that fails for some samples.",
        ),
        remedies=("Look at each reward function; resume before the fall with a lower `learning_rate`.",),
        source="[real]: 12 of 18 broken runs and no healthy one are beyond 4; one healthy run is beyond 3, and one of "
        "a further set dipped by 0.53 of its gain for 60 steps; all others that fell lost 0.8 or more",
        related=("rl_reward_mean", "rl_reward_function_mean", "rl_grad_norm", "rl_policy_ratio_dist"),
    ),
    condition("reward_weight_lost", "RLRewardJump", Family.REWARD_JUMP, _GROUPS).when(
        above("reward_weights_lost", info(0.5)),
        summary="A reward function no longer counts: its weight has become 0.",
        about="{subject} no longer counts: its weight has become 0.",
        meaning="The weight of a reward function was not 0, and is now. A curriculum may do that. What is compared "
        "with the past of the reward begins anew when weights change.",
        causes=("A curriculum, or a callback that sets `reward_weights`.",),
        remedies=("Compare `trainer.reward_weights` with what you set.",),
        source="a setting, told while it is so",
        related=("rl_reward_function_weight", "rl_reward_mean"),
    ),
    condition("reward_plateau", "RLRewardPlateau", Family.PLATEAU).when(
        below("reward_gain", warning(0.5, k=20, n=20), min_observations=_PLATEAU_FROM - REWARD_GAIN_FROM),
        summary="The reward has not risen since the run began.",
        meaning=f"After {_PLATEAU_FROM} rewards or more no 30 in a row were clearly above the first 30, in the spread "
        "of those. A run that starts from a trained policy may be there from the beginning.",
        causes=(
            "The learning rate is too low, or 0.",
            "The reward is noise, or the task is too hard.",
            "The KL penalty holds the policy where it is.",
        ),
        remedies=("Look at learning rate, KL (0 is a frozen policy) and zero-variance groups.",),
        source="[ranges]: plateau is stagnation; converged looks the same, so only against the start; 7 of 36 healthy "
        "runs in [real] rise after step 100 only, one after step 190",
        related=("rl_reward_mean", "rl_reward_std", "rl_learning_rate", "rl_kl_per_token"),
    ),
    condition("weights_frozen", "RLPolicyFrozen", Family.OPTIMIZER, _TRAINERS).when(
        above("weights_still", warning(0.5, k=3, n=3), critical(0.5, k=8, n=8)),
        summary="The weights no longer change, although there is a gradient.",
        meaning="Not one of some 30,000 trained weights has changed, to the last bit, between several rollouts, while "
        "the gradient was not 0 in any step: what is computed does not arrive in the policy.",
        causes=(
            "The optimizer holds other parameters than the model: the model was wrapped, copied or reloaded since.",
            "Updates are skipped: a loss scaler, a callback, or a learning rate of 0.",
            "bf16 weights whose updates are below their rounding.",
        ),
        remedies=(
            "Compare `trainer.optimizer.param_groups` with `trainer.model.parameters()`; check `learning_rate`.",
            "Resume from the last checkpoint before the step that the alert names.",
            "Keep an fp32 copy of the weights in the optimizer, or train an adapter in fp32.",
        ),
        source="live GRPO, RLOO and PPO runs: all weights change in each healthy update in fp32; 1 % in bf16 at 1e-6",
        related=("rl_weight_changed_fraction", "rl_weight_norm", "rl_grad_norm", "rl_learning_rate"),
    ),
    condition("policy_frozen", "RLPolicyFrozen", Family.PLATEAU).when(
        below("kl_distance", warning(1e-6, k=10, n=10)),
        summary="The policy does not move.",
        meaning="The KL divergence to the reference is as good as 0, for many steps in a row: the weights do not "
        "change, or not where it matters.",
        causes=("A learning rate of 0, or far too low for bf16 weights.", "Frozen parameters, an inactive adapter."),
        remedies=("Check `learning_rate`, which parameters require gradients, and the gradient norm.",),
        source="[runs]",
        related=("rl_kl_per_token", "rl_learning_rate", "rl_grad_norm"),
    ),
    condition("truncation", "RLTruncation", Family.TRUNCATION).when(
        above("truncation_rise", warning(0.3, k=8, n=10), critical(0.6, k=8, n=10)),
        summary="Completions are cut off at the length limit.",
        meaning="A far larger share of the completions than at the start is cut off, in most of the last steps. A "
        "completion that is cut off is not rewarded for the answer that it was going to give. A limit that cuts many "
        "off from the first step on is a property of the set-up, and no alert.",
        causes=("The limit is too short for the task.", "The policy is unlearning to stop, since length pays."),
        remedies=_LONGER,
        source="[miles]: a quarter; healthy runs in [real] rise by up to 0.3 for a while",
        related=("rl_completion_truncated_fraction", "rl_completion_length_mean", "rl_completion_length_dist"),
    ),
    condition("eos_missing", "RLTruncation", Family.TRUNCATION, ("ppo",)).when(
        above("eos_missing", warning(0.3, k=3, n=3), critical(0.9, k=5, n=5)),
        summary="Responses have no end token.",
        meaning="A large share of the responses of a batch has no end token, several steps in a row.",
        causes=("`response_length` is too short.", "The policy is unlearning to stop."),
        remedies=_LONGER,
        source="[trl]: num_eos_tokens; [runs]",
        related=("rl_eos_tokens", "rl_completion_length_dist"),
        stops=False,
    ),
    condition("length_low", "RLLengthCollapse", Family.LENGTH).when(
        below("length", warning(0.3, k=5, n=5), vs=Baseline.START),
        summary="Completions have become much shorter.",
        meaning="The mean length of the completions has fallen to a small part of its level at the start of the run.",
        causes=(
            "The reward, or the KL penalty summed over tokens, pays for short answers.",
            "A policy that has collapsed to an end token.",
        ),
        remedies=(
            "Read completions; normalize the reward by length.",
            'GRPO: set `loss_type="dapo"` or `loss_type="dr_grpo"`.',
        ),
        source="[runs], [real]; a run that learns short answers is healthy, hence far below half",
        related=("rl_completion_length_mean", "rl_completion_length_dist", "rl_reward_mean"),
        foretold_by=(
            *("kl_high", "kl_jump", "entropy_low", "entropy_collapsed", "value_loss_spike"),
            *("reward_flat", "reward_zeroed"),
        ),
    ),
    condition("length_high", "RLLengthGrowth", Family.LENGTH).when(
        above("length", warning(3.0, k=5, n=5), vs=Baseline.START),
        summary="Completions have become much longer.",
        meaning="The mean length of the completions stays far above its level at the start. A run that learns to "
        "think longer does that too: set `length_high` to what you expect.",
        causes=("The reward pays for length.", "The policy is unlearning to stop."),
        remedies=_LONGER,
        source="[runs], [real]; a warning at most",
        related=("rl_completion_length_mean", "rl_completion_truncated_fraction", "rl_reward_mean"),
    ),
    condition("same_length", "RLLengthSame", Family.LENGTH).when(
        below("same_length", warning(0.02, k=5, n=5)),
        summary="All completions have the same length.",
        meaning="The lengths of the completions hardly differ, several steps in a row: one answer for all prompts, "
        "or all of them cut off.",
        causes=("A collapse of entropy.", "Every completion runs into the limit."),
        remedies=("Look at entropy and at the truncated fraction.",),
        source="[runs]",
        related=("rl_completion_length_dist", "rl_completion_length_std", "rl_entropy_per_token"),
    ),
    condition("step_slow", "RLStepsSlow", Family.SLOW).when(
        above("step_time", warning(4.0, k=8, n=10), vs=Baseline.RECENT, floor=0.5, min_observations=20),
        summary="Steps have become much slower.",
        about="Steps have become much slower, most of all in {subject}.",
        meaning="Most of the last steps took several times the median of the run's own recent past.",
        causes=(
            "A reward service, a tool or a sampler that slows down.",
            "Longer completions.",
            "Another job on the same machine; a GPU that is throttled.",
        ),
        remedies=("`rl_phase_time_seconds` and `rl_reward_function_time_seconds` say which part of a step grows.",),
        source="[miles]: a phase above 6 times its median; [runs]",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds", "rl_completion_length_mean"),
    ),
    condition("step_stalled", "RLStepsSlow", Family.STALL).when(
        above("longest_pause", warning(30.0), vs=Baseline.RECENT, floor=60.0),
        summary="The run stood still for a while.",
        about="The run stood still for a while, in {subject}.",
        meaning="A step took very long, both in seconds and in multiples of the run's own pace; or an evaluation or a "
        "checkpoint took so long that the run counted as hung. It goes on now: a run that still hangs has "
        "RLRunStalled.",
        causes=("A reward service or a tool that did not answer until its time-out.", "A node that was paused."),
        remedies=("Look at `rl_phase_time_seconds` of that step, and set time-outs in reward functions.",),
        source="[runs]",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds"),
    ),
    condition("nonfinite_eval_reward", "RLEvalRewardNonFinite", Family.EVALUATION, _GROUP).when(
        above("nonfinite_eval_reward", warning(0.0)),
        summary="A reward function returned NaN or infinity in an evaluation.",
        about="{subject} returned NaN or infinity in an evaluation.",
        meaning="The value is how many in the last evaluation of each data set. Nothing was learned from them, but the "
        "same function judges the training, and the logged mean of the evaluation leaves NaN out. The condition holds "
        "until an evaluation has none.",
        causes=(
            "A reward function divides by zero, or takes the logarithm of one.",
            "The evaluation has samples that the function was not made for.",
            "A remote reward service answers with NaN when it fails.",
        ),
        remedies=(
            "`rl_eval_reward_function_unfiltered_mean` is not finite for the function and the data set: run that "
            "function on that data set by hand.",
            "Return None for samples that the function cannot judge, a number for all others.",
        ),
        source="any NaN or infinity is a fault; in an evaluation it reaches no weight",
        related=("rl_eval_reward_function_unfiltered_mean", "rl_nonfinite_values_total"),
    ),
)

CONDITION_NAMED = {condition.name: condition for condition in CONDITIONS}

BY_ALERT = {
    alert: tuple(condition for condition in CONDITIONS if condition.alert == alert)
    for alert in dict.fromkeys(condition.alert for condition in CONDITIONS)
}
"""The conditions that raise each alert, in the order of the first of them."""
