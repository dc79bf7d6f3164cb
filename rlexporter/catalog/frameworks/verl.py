"""verl's keys. Read in release 0.9.1, below ``verl/``; older names were read in 0.2 to 0.8.

trainer/ppo/metric_utils.py         scores, rewards, advantages, returns, values, lengths, timing, throughput
trainer/ppo/core_algos.py           clip fractions and ppo_kl of each loss
trainer/ppo/ray_trainer.py          KL penalty in the reward, epochs
trainer/ppo/v1/trainer_base.py      staleness of trajectories, turns, evicted samples
trainer/ppo/rollout_corr_helper.py  rollout_corr: importance weights, rejection, perplexities
workers/utils/losses.py             losses, kl_loss, entropy: means if ``loss_agg_mode`` is one (``token-mean``...)
workers/engine_workers.py           memory, MFU, learning rate
utils/debug/metrics.py              differences of probabilities between rollout and trainer
utils/seqlen_balancing.py           tokens of each rank
"""

from __future__ import annotations

from dataclasses import replace

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.catalog.frameworks.entries import feeds, no_metric, statistics
from rlexporter.model.framework import Framework

_GIB = float(2**30)

_REWARD = (
    *feeds("rl_reward_mean", "critic/score/mean"),
    *feeds("rl_reward_min", "critic/score/min"),
    *feeds("rl_reward_max", "critic/score/max"),
    *feeds("rl_rlhf_reward", "critic/rewards/mean"),
    *feeds("rl_rlhf_reward_min", "critic/rewards/min"),
    *feeds("rl_rlhf_reward_max", "critic/rewards/max"),
    *feeds("rl_advantage_mean", "critic/advantages/mean", families=(PPO,)),
    *feeds("rl_token_advantage_mean", "critic/advantages/mean", families=(GRPO,)),
    *statistics("rl_advantage_", "critic/advantages", "min", "max"),
    *statistics("rl_return_", "critic/returns"),
)

_POLICY = (
    *feeds("rl_kl_per_token", "actor/kl_loss", families=(GRPO,)),
    *feeds("rl_kl_per_token", "actor/reward_kl_penalty", "critic/kl", families=(PPO,)),
    *feeds("rl_kl_loss_per_token", "actor/kl_loss", families=(PPO,)),
    *feeds("rl_kl_penalty_per_token", "actor/reward_kl_penalty", "critic/kl", families=(GRPO,)),
    *feeds("rl_kl_coef", "actor/reward_kl_penalty_coeff", "critic/kl_coeff", "actor/kl_coef"),
    *feeds("rl_policy_policykl", "actor/ppo_kl"),
    *feeds("rl_clip_ratio_region_mean", "actor/pg_clipfrac", families=(GRPO,)),
    *feeds("rl_policy_clipfrac", "actor/pg_clipfrac", families=(PPO,)),
    *feeds("rl_policy_dual_clipfrac", "actor/pg_clipfrac_lower"),
    *feeds("rl_policy_loss", "actor/pg_loss"),
    *feeds("rl_loss", "actor/loss"),
    *feeds("rl_entropy_per_token", "actor/entropy"),
    *feeds("rl_update_entropy_per_token", "actor/entropy_loss"),
    *feeds("rl_grad_norm", "actor/grad_norm"),
    *feeds("rl_learning_rate", "actor/lr", "actor/learning_rate"),
)

_CRITIC = (
    *statistics("rl_value_", "critic/values"),
    *feeds("rl_value_explained_variance", "critic/vf_explained_var"),
    *feeds("rl_value_loss", "critic/vf_loss"),
    *feeds("rl_value_clipfrac", "critic/vf_clipfrac"),
    *feeds("rl_value_prediction", "critic/vpred_mean"),
    *feeds("rl_value_grad_norm", "critic/grad_norm"),
    *feeds("rl_value_learning_rate", "critic/lr", "critic/learning_rate"),
)

_LENGTHS = (
    *statistics("rl_completion_length_", "response_length"),
    *statistics("rl_nonempty_completion_length_", "response_length_non_aborted"),
    *feeds("rl_nonempty_completion_truncated_fraction", "response_length_non_aborted/clip_ratio"),
    *feeds("rl_completion_empty_fraction", "response/aborted_ratio"),
    *statistics("rl_prompt_length_", "prompt_length"),
    *feeds("rl_prompt_truncated_fraction", "prompt_length/clip_ratio"),
    *statistics("rl_turns_", "num_turns"),
    *statistics("rl_turns_", "training/num_turns"),
    *feeds("rl_tool_call_frequency", "tool_call_counts/mean"),
    *feeds("rl_tool_calls_min", "tool_call_counts/min"),
    *feeds("rl_tool_calls_max", "tool_call_counts/max"),
)

_IS = "rollout_corr/rollout_is"
_SAMPLER = (
    *feeds("rl_sampling_probability_difference_mean", "training/rollout_probs_diff_mean"),
    *feeds("rl_sampling_probability_difference_max", "training/rollout_probs_diff_max"),
    *feeds("rl_sampling_probability_difference_std", "training/rollout_probs_diff_std"),
    *feeds("rl_sampling_probability_correlation", "training/rollout_actor_probs_pearson_corr"),
    *feeds("rl_sampling_probabilities_valid", "training/rollout_probs_diff_valid"),
    *feeds("rl_sampling_kl_per_token", "rollout_corr/kl"),
    *feeds("rl_rollout_kl_per_token", "rollout_corr/k3_kl"),
    *feeds("rl_trainer_perplexity", "rollout_corr/training_ppl"),
    *feeds("rl_trainer_log_perplexity", "rollout_corr/training_log_ppl"),
    *feeds("rl_sampler_perplexity", "rollout_corr/rollout_ppl"),
    *feeds("rl_sampler_log_perplexity", "rollout_corr/rollout_log_ppl"),
    *feeds("rl_perplexity_ratio", "rollout_corr/ppl_ratio"),
    *feeds("rl_log_perplexity_difference_mean", "rollout_corr/log_ppl_diff"),
    *feeds("rl_log_perplexity_difference_min", "rollout_corr/log_ppl_diff_min"),
    *feeds("rl_log_perplexity_difference_max", "rollout_corr/log_ppl_diff_max"),
    *feeds("rl_log_perplexity_absolute_difference", "rollout_corr/log_ppl_abs_diff"),
    *feeds("rl_sampling_chi2_per_token", "rollout_corr/chi2_token"),
    *feeds("rl_sampling_chi2_per_sequence", "rollout_corr/chi2_seq"),
    *feeds("rl_sampling_weight_mean", f"{_IS}_mean"),
    *feeds("rl_sampling_weight_std", f"{_IS}_std"),
    *feeds("rl_sampling_weight_min", f"{_IS}_min"),
    *feeds("rl_sampling_weight_max", f"{_IS}_max"),
    *feeds("rl_sampling_weight_high_fraction", f"{_IS}_ratio_fraction_high"),
    *feeds("rl_sampling_weight_low_fraction", f"{_IS}_ratio_fraction_low"),
    *feeds("rl_sampling_weight_outside_fraction", f"{_IS}_oob_ratio"),
    *feeds("rl_sampling_effective_sample_fraction", f"{_IS}_eff_sample_size"),
    *feeds("rl_sampling_weight_norm_factor", f"{_IS}_batch_norm_factor"),
    *feeds("rl_sampling_sequence_weight_mean", f"{_IS}_seq_mean"),
    *feeds("rl_sampling_sequence_weight_std", f"{_IS}_seq_std"),
    *feeds("rl_sampling_sequence_weight_min", f"{_IS}_seq_min"),
    *feeds("rl_sampling_sequence_weight_max", f"{_IS}_seq_max"),
    *feeds("rl_sampling_sequence_weight_deviation_max", f"{_IS}_seq_max_deviation"),
    *feeds("rl_sampling_sequence_weight_high_fraction", f"{_IS}_seq_fraction_high"),
    *feeds("rl_sampling_sequence_weight_low_fraction", f"{_IS}_seq_fraction_low"),
    *feeds("rl_sampling_rejected_token_fraction", "rollout_corr/rollout_rs_masked_fraction"),
    *feeds("rl_sampling_rejected_sequence_fraction", "rollout_corr/rollout_rs_seq_masked_fraction"),
    *feeds("rl_sampling_rejection", "rollout_corr/rollout_rs_{statistic}"),
    *feeds("rl_sample_staleness_mean", "training/off_policy/trajectory_staleness/mean"),
    *feeds("rl_sample_staleness_min", "training/off_policy/trajectory_staleness/min"),
    *feeds("rl_sample_staleness_max", "training/off_policy/trajectory_staleness/max"),
    *feeds("rl_evicted_samples", "training/{reason}/evicted_samples"),
)

_SPEED = (
    *feeds("rl_step_time_seconds", "perf/time_per_step"),
    *feeds("rl_phase_time_seconds", "timing_s/{phase}"),
    *feeds("rl_phase_time_per_token_seconds", "timing_per_token_ms/{phase}", scale=0.001),
    *feeds("rl_tokens_per_second_per_gpu", "perf/throughput"),
    *feeds("rl_step_tokens", "perf/total_num_tokens"),
    *feeds("rl_role_flops_utilization", "perf/mfu/{role}"),
    *feeds("rl_gpu_memory_allocated_max_bytes", "perf/max_memory_allocated_gb", scale=_GIB),
    *feeds("rl_gpu_memory_reserved_max_bytes", "perf/max_memory_reserved_gb", scale=_GIB),
    *feeds("rl_host_memory_used_bytes", "perf/cpu_memory_used_gb", scale=_GIB),
    *statistics("rl_rank_tokens_", "global_seqlen"),
    *feeds("rl_rank_tokens_balanced_min", "global_seqlen/balanced_min"),
    *feeds("rl_rank_tokens_balanced_max", "global_seqlen/balanced_max"),
    *feeds("rl_rank_tokens_range", "global_seqlen/minmax_diff"),
)

_BOTH = (
    *(*_REWARD, *_POLICY, *_CRITIC, *_LENGTHS, *_SAMPLER, *_SPEED),
    *feeds("rl_epoch", "training/epoch"),
    *feeds("rl_eval_score", "val-core/{dataset}/{score}/{statistic}", "val-aux/{dataset}/{score}/{statistic}"),
    *no_metric("training/global_step"),
)

VERL = Framework(
    name="verl",
    title="verl",
    marks=frozenset(("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/pg_clipfrac_lower")),
    critic=frozenset(("critic/vf_loss", "critic/values/mean", "critic/vf_explained_var")),
    source="verl 0.2 to 0.9.1 (pip): verl/trainer/ppo, verl/workers, verl/utils",
    keys=(*_BOTH, *feeds("rl_completion_truncated_fraction", "response_length/clip_ratio")),
)

VERL_V1 = replace(
    VERL,
    name="verl-v1",
    title="verl, trainer V1 (the default from 0.9)",
    marks=frozenset(("training/off_policy/trajectory_spans/mean",)),
    keys=(*_BOTH, *feeds("rl_completion_longest_fraction", "response_length/clip_ratio")),
)
"""Its completions are padded to the longest of the step: the key does not say how many the limit has cut off."""
