"""NeMo-RL's keys. Read in v0.7.0 of github.com/NVIDIA-NeMo/RL, below ``nemo_rl/``:

algorithms/grpo.py, algorithms/ppo.py     what is logged of a step, and how micro-batches are put together
algorithms/loss/loss_functions.py         ClippedPGLossFn: ratios, KL, mismatch of engines; the value loss of PPO
algorithms/utils.py                       calculate_kl, throughput
experience/rollouts.py                    lengths, turns, truncation
models/policy/workers/                    norm of the gradient, learning rate; means over the updates of a step
utils/logger.py                           prefixes: all backends have ``train/``, ``validation/``, ``timing/train/``...

The KL estimators are those of ``loss_fn.reference_policy_kl_type`` (k3 by default), also for ``gen_kl_error`` and
``policy_kl_error``, which compare sampler and trainer. ``kl_penalty`` is 0 without a penalty, and the smallest and
largest ratio -1 in a step without a token.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.catalog.frameworks.entries import below, feeds, statistics
from rlexporter.model.framework import Framework

_LEARNING = (
    *feeds("rl_reward_mean", "reward"),
    *feeds("rl_reward_min", "min_total_reward", "total_reward/min"),
    *feeds("rl_reward_max", "max_total_reward", "total_reward/max"),
    *feeds("rl_kept_reward_mean", "filtered_reward"),
    *feeds("rl_baseline_reward_fraction", "baseline_reward/pct_{baseline}", scale=0.01),
    *feeds("rl_advantage_mean", "advantages/mean", families=(PPO,)),
    *feeds("rl_token_advantage_mean", "advantages/mean", families=(GRPO,)),
    *statistics("rl_advantage_", "advantages", "min", "max"),
    *feeds("rl_kl_per_token", "kl_penalty", families=(GRPO,), nothing=0.0),
    *feeds("rl_kl_loss_per_token", "kl_penalty", families=(PPO,), nothing=0.0),
    *feeds("rl_sampled_entropy_per_token", "approx_entropy"),
    *feeds("rl_policy_ratio_mean", "probs_ratio"),
    *feeds("rl_policy_ratio_min", "probs_ratio_min", nothing=-1.0),
    *feeds("rl_policy_ratio_max", "probs_ratio_max", nothing=-1.0),
    *feeds("rl_policy_clipped_ratio_mean", "probs_ratio_clamped"),
    *feeds("rl_loss", "loss"),
    *feeds("rl_grad_norm", "grad_norm"),
    *feeds("rl_learning_rate", "lr"),
)

_CRITIC = (
    *feeds("rl_value_loss", "critic/loss"),
    *feeds("rl_value_clipfrac", "critic/vf_clipfrac"),
    *feeds("rl_value_prediction", "critic/values_mean"),
    *feeds("rl_value_explained_variance", "critic/explained_var"),
    *feeds("rl_return_mean", "critic/returns_mean"),
    *feeds("rl_value_grad_norm", "critic/grad_norm"),
    *feeds("rl_value_learning_rate", "critic/lr"),
)

_ENGINES = (
    *feeds("rl_sampling_probability_factor_mean", "token_mult_prob_error"),
    *feeds("rl_sampling_sequence_factor_mean", "mean_seq_mult_prob_error"),
    *feeds("rl_sampling_sequence_factor_min", "min_seq_mult_prob_error"),
    *feeds("rl_sampling_sequence_factor_max", "max_seq_mult_prob_error"),
    *feeds("rl_rollout_kl_per_token", "gen_kl_error"),
    *feeds("rl_trainer_kl_per_token", "policy_kl_error"),
    *feeds("rl_sampling_js_per_token", "js_divergence_error"),
    *feeds("rl_importance_sampling_ratio_mean", "sampling_importance_ratio"),
    *feeds("rl_sampling_filtered_fraction", "is_oob_ratio"),
    *feeds("rl_sample_staleness_mean", "avg_trajectory_age"),
)

_LENGTHS = (
    *feeds("rl_prompt_length_mean", "mean_prompt_length"),
    *statistics("rl_completion_length_", "gen_tokens_per_sample"),
    *feeds("rl_completion_length_mean", "mean_gen_tokens_per_sample"),
    *feeds("rl_completion_length_max", "max_gen_tokens_per_sample"),
    *feeds("rl_completion_truncated_fraction", "truncation_rate"),
    *statistics("rl_sequence_length_", "total_tokens_per_sample"),
    *feeds("rl_sequence_length_mean", "mean_total_tokens_per_sample"),
    *statistics("rl_turns_", "turns_per_sample"),
    *feeds("rl_turns_mean", "avg_turns_per_sample"),
    *feeds("rl_turns_max", "max_turns_per_sample"),
    *feeds("rl_step_tokens", "total_num_tokens"),
)

_SPEED = (
    *feeds("rl_step_time_seconds", "timing/train/total_step_time"),
    *feeds("rl_trained_tokens_per_second_per_gpu", "timing/train/valid_tokens_per_sec_per_gpu"),
    *feeds("rl_phase_time_seconds", "timing/train/{phase}", "timing/train/{phase}/total"),
    *feeds("rl_tokens_per_second_per_gpu", "performance/tokens_per_sec_per_gpu"),
    *feeds("rl_training_tokens_per_second_per_gpu", "performance/policy_training_tokens_per_sec_per_gpu"),
    *feeds("rl_model_flops_utilization", "performance/{role}_fp_utilization"),
)

NEMO_RL = Framework(
    name="nemo-rl",
    title="NeMo-RL",
    marks=frozenset(("train/token_mult_prob_error", "train/gen_kl_error", "train/sampling_importance_ratio")),
    critic=frozenset(("train/critic/loss", "train/critic/values_mean")),
    source="NeMo-RL v0.7.0 (github.com/NVIDIA-NeMo/RL): nemo_rl/algorithms, nemo_rl/experience, nemo_rl/utils",
    keys=(
        *below("train/", (*_LEARNING, *_CRITIC, *_ENGINES, *_LENGTHS)),
        *_SPEED,
        *feeds("rl_validation_reward_mean", "validation/accuracy"),
        *feeds("rl_validation_length_mean", "validation/avg_length"),
    ),
)
