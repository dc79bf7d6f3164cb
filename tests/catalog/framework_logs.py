"""Two lines of the log of each framework, with different values in both, and the series that serve the second.

They are written by hand, in the form that the sources named in `rlexporter.catalog.frameworks` give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import nan

Row = tuple[str, float | str | None, float | str, str]
"""A key, its value in the first line (None: it is not there) and in the second, and the series; empty for none."""
GIB = 1024.0**3


@dataclass(frozen=True)
class Log:
    """Lines, and what they leave: ``family`` is how the run is judged, ``last`` a line more, of which only this is.

    ``beside``: keys that are logged as well, whose series another log shows; ``other``: series whose value is in
    another unit than that of the key; ``absent``: series that nothing feeds; ``alerts``: what fires, and in which step.
    """

    family: str
    rows: tuple[Row, ...]
    last: tuple[Row, ...] = ()
    beside: tuple[Row, ...] = ()
    other: Mapping[str, float] = field(default_factory=dict)
    absent: Set[str] = frozenset()
    alerts: Set[tuple[str, int]] = frozenset()

    @property
    def lines(self) -> list[dict[str, float | str]]:
        """The lines of the file."""
        both = {row[0]: row for row in (*self.beside, *self.rows)}.values()
        first = {key: value for key, value, _, _ in both if value is not None}
        lines = [first, {key: value for key, _, value, _ in both}, {key: value for key, _, value, _ in self.last}]
        return [line for line in lines if line]

    @property
    def served(self) -> dict[str, float | str]:
        """What is served in the end, by series and labels."""
        return {series: value for _, _, value, series in (*self.rows, *self.last) if series} | dict(self.other)


OPENRLHF: tuple[Row, ...] = (
    ("train/global_step", 1, 2, ""),
    ("train/reward", 0.25, 0.375, "rl_reward_mean"),
    ("train/rollout/reward_mean", 0.25, 0.375, ""),
    ("train/group_reward_std", 0.5, 0.25, "rl_reward_group_std"),
    ("train/return", 0.01, 0.02, "rl_shaped_reward_mean"),
    ("train/kl", 0.002, 0.004, "rl_kl_estimate_per_token"),
    ("train/logprobs_diff", -0.001, 0.005, "rl_kl_k1_per_token"),
    ("train/ppo_kl", 0.0005, 0.0007, "rl_policy_policykl"),
    ("train/ppo_clip_ratio", 0.01, 0.03, "rl_clip_ratio_region_mean"),
    ("train/vllm_kl", 0.003, 0.006, "rl_sampling_kl_per_token"),
    ("train/policy_loss", -0.02, -0.04, "rl_policy_loss"),
    ("train/entropy_loss", 0.75, 0.7, "rl_update_entropy_per_token"),
    ("train/actor_lr", 1e-6, 2e-6, "rl_learning_rate"),
    ("train/actor_grad_norm", 0.5, nan, "rl_grad_norm"),
    ("train/response_length", 200.0, 210.0, "rl_completion_length_mean"),
    ("train/truncated", 0.0, 0.125, "rl_completion_truncated_fraction"),
    ("train/total_length", 300.0, 310.0, "rl_sequence_length_mean"),
    ("train/timing/generation", 12.0, 13.0, "rl_phase_time_seconds/generation"),
    ("train/timing/step_total", 20.0, 22.0, "rl_step_time_seconds"),
)
OPENRLHF_EVALUATION: tuple[Row, ...] = (
    ("eval/global_step", None, 2, ""),
    ("eval/eval_math_500_pass8", None, 0.9, "rl_eval_best_reward/math_500/8"),
    ("eval/eval_math_500_pass1", None, 0.4, "rl_eval_best_reward/math_500/1"),
    ("eval/eval_truncated_rate", None, 0.1, "rl_validation_truncated_fraction"),
)
OPENRLHF_CRITIC: tuple[Row, ...] = (
    ("train/return", 0.01, 0.02, "rl_rlhf_reward"),  # with the penalty, and not that without a baseline
    ("train/ppo_clip_ratio", 0.01, 0.03, "rl_policy_clipfrac"),
    ("train/critic_loss", 0.2, 0.4, "rl_value_loss"),
    ("train/values", 0.1, 0.2, "rl_value_prediction"),
    ("train/critic_lr", 1e-5, 2e-5, "rl_value_learning_rate"),
)
NEMO_RL: tuple[Row, ...] = (
    ("step", 1, 2, ""),
    ("train/reward", 0.25, 0.5, "rl_reward_mean"),
    ("train/loss", 0.01, nan, "rl_loss"),
    ("train/kl_penalty", 0.002, 0.003, "rl_kl_per_token"),
    ("train/probs_ratio", 1.001, 1.002, "rl_policy_ratio_mean"),
    ("train/probs_ratio_min", 0.5, 0.25, "rl_policy_ratio_min"),
    ("train/probs_ratio_max", -1.0, 2.0, "rl_policy_ratio_max"),
    ("train/token_mult_prob_error", 1.01, 1.02, "rl_sampling_probability_factor_mean"),
    ("train/gen_kl_error", 0.001, 0.002, "rl_rollout_kl_per_token"),
    ("train/sampling_importance_ratio", 0.99, 0.98, "rl_importance_sampling_ratio_mean"),
    ("train/approx_entropy", 0.5, 0.4, "rl_sampled_entropy_per_token"),
    ("train/grad_norm", 0.25, 0.5, "rl_grad_norm"),
    ("train/lr", 1e-6, 2e-6, "rl_learning_rate"),
    ("train/advantages/mean", 0.01, 0.02, "rl_token_advantage_mean"),
    ("train/baseline_reward/pct_mixed", 50.0, 25.0, "rl_baseline_reward_fraction/mixed"),
    ("train/mean_gen_tokens_per_sample", 100.0, 110.0, "rl_completion_length_mean"),
    ("train/truncation_rate", 0.0, 0.125, "rl_completion_truncated_fraction"),
    ("timing/train/total_step_time", 30.0, 31.0, "rl_step_time_seconds"),
    ("timing/train/policy_training", 10.0, 11.0, "rl_phase_time_seconds/policy_training"),
    ("timing/train/valid_tokens_per_sec_per_gpu", 1000.0, 1100.0, "rl_trained_tokens_per_second_per_gpu"),
    ("performance/tokens_per_sec_per_gpu", 2000.0, 2100.0, "rl_tokens_per_second_per_gpu"),
    ("validation/accuracy", None, 0.75, "rl_validation_reward_mean"),
)
PRIME_RL: tuple[Row, ...] = (
    ("step", 1, 2, ""),
    ("entropy/all/mean", 0.5, 0.4, "rl_entropy_per_token"),
    ("mismatch_kl/all/mean", 0.001, nan, "rl_rollout_kl_per_token"),
    ("loss/mean", 0.01, 0.02, "rl_micro_batch_loss_mean"),
    ("is_masked/mean", 0.01, 0.02, "rl_trust_region_masked_fraction"),
    ("is_masked_high/mean", 0.005, 0.015, "rl_trust_region_side_fraction/high"),
    ("optim/lr", 1e-6, 2e-6, "rl_learning_rate"),
    ("optim/grad_norm", 0.25, 0.5, "rl_grad_norm"),
    ("perf/peak_memory", 10.0, 2.0, "rl_gpu_memory_reserved_max_bytes"),
    ("perf/throughput_per_gpu", 1000.0, 1100.0, "rl_training_tokens_per_second_per_gpu"),
    ("time/step", 30.0, 31.0, "rl_step_time_seconds"),
    ("time/forward_backward", 20.0, 21.0, "rl_phase_time_seconds/forward_backward"),
)
PRIME_RL_ORCHESTRATOR: tuple[Row, ...] = (  # an agent called `agent` is the only one, whose reward is that of the run
    ("step", 1, 2, ""),
    ("train/agg/all/agent/reward/mean", 0.25, 0.5, "rl_reward_mean"),
    ("train/agg/all/solver/reward/p90", 1.0, 1.25, "rl_agent_reward/solver/p90"),
    ("train/agg/effective/agent/reward/mean", 0.375, 0.625, "rl_kept_reward_mean"),
    ("train/agg/all/agent/is_truncated/mean", 0.25, 0.5, "rl_completion_truncated_fraction"),
    ("train/agg/all/agent/solved_none", 0.125, 0.25, "rl_solved_fraction/agent/none"),
    ("train/agg/all/num_output_tokens/mean", 100.0, 200.0, "rl_completion_length_mean"),
    ("train/agg/all/num_total_tokens/max", 300.0, 600.0, "rl_sequence_length_max"),
    ("off_policy/mean", 1.0, 2.0, "rl_sample_staleness_mean"),
    ("off_policy/dropped", 4.0, 8.0, "rl_evicted_samples/dropped"),
    ("progress/tokens", 5000.0, 10000.0, "rl_step_tokens"),
    ("eval/aime/2025/effective/agent/pass@4", 0.1, 0.2, "rl_eval_score/aime/2025/agent/pass@4"),
)
VERL: tuple[Row, ...] = (
    ("step", 1, 2, ""),
    ("critic/score/mean", 0.25, 0.5, "rl_reward_mean"),
    ("actor/pg_loss", 0.01, 0.02, "rl_policy_loss"),
    ("timing_per_token_ms/gen", 20, 30.0, "rl_phase_time_per_token_seconds/gen"),
    ("perf/max_memory_allocated_gb", 1.5, 2, "rl_gpu_memory_allocated_max_bytes"),
    ("timing_s/gen", 4.0, 5.0, "rl_phase_time_seconds/gen"),
    ("val-core/openai/gsm8k/acc/mean@8", None, 0.5, "rl_eval_score/openai/gsm8k/acc/mean@8"),  # named as the hub does
)
MS_SWIFT: tuple[Row, ...] = (
    ("loss", 0.01, 0.02, "rl_loss"),
    ("grad_norm", 0.5, nan, "rl_grad_norm"),
    ("reward", 0.25, 0.5, "rl_reward_mean"),
    ("reward_std", 0.125, 0.125, ""),
    ("frac_reward_zero_std", 0.5, 0.5, ""),
    ("rewards/MathAccuracy/mean", 0.25, 0.5, ""),
    ("completions/mean_length", 100.0, 200.0, ""),
    ("completions/clipped_ratio", 0.25, 0.25, ""),
    ("clip_ratio/region_mean", 0.03125, 0.0625, ""),
    ("clip_ratio/low_min", 0.0, 0.0, ""),
    ("entropy/mean", 0.5, 0.25, "rl_entropy_per_token"),
    ("entropy/min", 0.25, 0.125, "rl_completion_entropy_min"),
    ("entropy/max", 1.0, 0.5, "rl_completion_entropy_max"),
    ("entropy/threshold", 0.75, 0.375, "rl_entropy_threshold"),
    ("num_turns", 1.5, 3.0, "rl_turns_mean"),
    ("kl", 0.001, 0.002, "rl_kl_per_token"),
    ("rollout_correction/kl", -0.002, -0.004, "rl_sampling_kl_per_token"),
    ("rollout_correction/chi2_seq", 0.003, 0.006, "rl_sampling_chi2_of_means"),
    ("rollout_correction/ess", 1.0, 0.5, "rl_sampling_effective_sample_fraction"),
    ("rollout_correction/clipped_frac", 0.0625, 0.125, "rl_sampling_weight_limited_fraction"),
    ("rollout_correction/is_weight_mean", 1.0, 1.0, "rl_sampling_weight_mean"),
    ("fipo/future_kl_mean", 0.125, 0.25, "rl_fipo/future_kl_mean"),
    ("sdar/gate_mean", 0.25, 0.5, "rl_sdar/gate_mean"),
    ("teacher_kl", 0.5, 1.0, "rl_teacher_kl_per_token"),
    ("epoch", 0.1, 0.2, ""),
    ("global_step/max_steps", "1/40", "2/40", ""),  # texts are no metrics
    ("percentage", "2.50%", "5.00%", ""),
    ("elapsed_time", "1m 2s", "2m 4s", ""),
    ("remaining_time", "38m 0s", "37m 0s", ""),
    ("memory(GiB)", 2.0, 4.0, "rl_gpu_memory_reserved_max_bytes"),
    ("train_speed(s/it)", 61.0, 62.0, "rl_mean_step_time_seconds"),
)
UNSLOTH: tuple[Row, ...] = (
    ("step", 1, 2, ""),
    ("reward", 0.5, 1.0, "rl_reward_mean"),
    ("rewards/fits/mean", 0.5, 0.5, ""),
    ("kl", 0.01, 0.01, ""),
    ("completion_length", 64.0, 64.0, "rl_completion_length_mean"),
    ("sampling/rollout_kl_k1/mean", -0.001, -0.002, "rl_sampling_kl_per_token"),
    ("sampling/rollout_kl_k3/mean", 0.002, 0.004, "rl_rollout_kl_per_token"),
    ("sampling/rollout_kl_k3/max", 3.0, 6.0, "rl_rollout_kl_max"),
    ("sampling/importance_sampling_ess", 0.875, 1.75, "rl_sampling_effective_sample_fraction"),
    ("sampling/importance_sampling_rejected_frac", 0.125, 0.25, "rl_sampling_rejected_token_fraction"),
    ("sampling/importance_sampling_rejected_seq_frac", 0.25, 0.5, "rl_sampling_rejected_sequence_fraction"),
    ("frac_reward_zero_std_excluded", 0.5, 1.0, "rl_zero_std_excluded_fraction"),
)
SLIME: tuple[Row, ...] = (
    ("step", 1, 2, ""),
    ("train/step", 1, 2, ""),
    ("rollout/step", 1, 2, ""),
    ("rollout/raw_reward", 0.25, 0.5, "rl_reward_mean"),
    ("rollout/rewards", 0.0, 0.0, ""),
    ("rollout/log_probs", -0.5, -1.0, "rl_trainer_log_perplexity"),
    ("rollout/response_len/mean", 100.0, 200.0, "rl_completion_length_mean"),
    ("rollout/response_len/median", 90.0, 90.0, ""),
    ("rollout/truncated_ratio", 0.125, 0.125, "rl_completion_truncated_fraction"),
    ("rollout/repetition_frac", 0.0625, 0.0625, ""),
    ("rollout/zero_std/count_0.0", 3.0, 6.0, "rl_zero_std_groups/0.0"),
    ("passrate/pass@8", 0.5, 1.0, "rl_pass_rate/8"),
    ("train/loss", 0.01, 0.02, "rl_loss"),
    ("train/pg_loss", -0.01, -0.02, "rl_policy_loss"),
    ("train/entropy_loss", 0.5, 0.25, "rl_update_entropy_per_token"),
    ("train/pg_clipfrac", 0.03125, 0.0625, "rl_clip_ratio_region_mean"),
    ("train/ppo_kl", 0.001, 0.002, "rl_policy_policykl"),
    ("train/kl_loss", 0.002, 0.004, "rl_kl_loss_per_token"),
    ("train/grad_norm", 0.5, nan, "rl_grad_norm"),
    ("train/lr-pg_0", 1e-6, 1e-6, "rl_learning_rate"),
    ("train/lr-pg_1", 1e-6, 1e-6, ""),
    ("train/train_rollout_logprob_abs_diff", 0.01, 0.02, "rl_sampling_logp_difference_mean"),
    ("train/tis", 1.01, 1.02, "rl_sampling_ratio_mean"),
    ("train/tis_clipfrac", 0.25, 0.25, "rl_sampling_weight_limited_fraction"),
    ("perf/step_time", 30.0, 60.0, "rl_step_time_seconds"),
    ("perf/rollout_time", 20.0, 40.0, "rl_phase_time_seconds/rollout"),
    ("perf/actor_train_tflops", 100.0, 200.0, "rl_phase_tflops/actor_train"),
    ("perf/wait_time_ratio", 0.5, 0.5, "rl_waiting_fraction"),
    ("eval/aime", 0.25, 0.5, "rl_eval_reward/aime"),
    ("eval/aime-truncated_ratio", 0.5, 0.5, "rl_eval_truncated_fraction/aime"),
    ("eval/aime-pass@4", 0.75, 0.75, "rl_eval_pass_at_k/aime/4"),
)
SLIME_CRITIC: tuple[Row, ...] = (
    ("train/critic-value_loss", 0.5, 0.25, "rl_value_loss"),
    ("train/critic-value_clipfrac", 0.125, 0.125, "rl_value_clipfrac"),
    ("train/critic-grad_norm", 2.0, 2.0, "rl_value_grad_norm"),
    ("train/pg_clipfrac", 0.03125, 0.0625, "rl_policy_clipfrac"),
    ("train/grad_norm", 0.5, 1.0, "rl_grad_norm"),
)
MILES: tuple[Row, ...] = (
    ("train/ess_ratio", 0.5, 0.5, "rl_update_effective_sample_fraction"),
    ("train/train_rollout_kl", 0.01, 0.01, "rl_rollout_kl_per_token"),
    ("rollout/zero_std/all_zero_percentage", 0.25, 0.25, "rl_groups_all_zero_fraction"),
    ("eval/skipped_busy", None, 1.0, "rl_eval_skipped/busy"),  # a validation that was skipped is no reward
    ("perf/actor_train_mfu", None, 0.375, "rl_model_flops_utilization/actor_train"),
    ("multi_turn/multi_turn_metric/round_number_max", None, 5.0, "rl_turns_max"),
    ("train/grad_norm", 0.5, 1.0, "rl_grad_norm"),
)
NAN_GRADIENT = {("RLGradientNonFinite", 2)}
LOGS = {
    "verl": Log(
        "grpo",
        VERL,
        other={"rl_phase_time_per_token_seconds/gen": 0.03, "rl_gpu_memory_allocated_max_bytes": 2 * GIB},
    ),
    "openrlhf": Log("grpo", OPENRLHF, last=OPENRLHF_EVALUATION, absent={"rl_rlhf_reward"}, alerts=NAN_GRADIENT),
    "openrlhf, with a critic": Log("ppo", OPENRLHF_CRITIC, beside=OPENRLHF, alerts=NAN_GRADIENT),
    "nemo-rl": Log(
        "grpo",
        NEMO_RL,
        other={"rl_baseline_reward_fraction/mixed": 0.25},  # percent are fractions
        alerts={("RLLossNonFinite", 2)},
    ),
    "prime-rl": Log(
        "grpo", PRIME_RL, other={"rl_gpu_memory_reserved_max_bytes": 2 * GIB}, alerts={("RLMetricNonFinite", 2)}
    ),
    "prime-rl, its orchestrator": Log("grpo", PRIME_RL_ORCHESTRATOR),
    "ms-swift": Log(
        "grpo",
        MS_SWIFT,
        other={"rl_gpu_memory_reserved_max_bytes": 4 * GIB},
        absent={"rl_sampling_chi2_per_sequence"},  # verl's, which is made of products of ratios
        alerts=NAN_GRADIENT,
    ),
    "unsloth": Log("grpo", UNSLOTH),
    "slime": Log(
        "grpo",
        SLIME,
        other={"rl_trainer_log_perplexity": 1.0},
        absent={"rl_kl_per_token"},  # its estimator is a setting that the log does not tell
        alerts=NAN_GRADIENT,
    ),
    "slime, with a critic": Log("ppo", SLIME_CRITIC, beside=SLIME, other={"rl_value_loss": 0.125}),  # half the square
    "miles": Log("grpo", MILES, beside=SLIME, absent={"rl_eval_reward/skipped_busy"}),
}
"""By the name of the framework, and what is more."""
