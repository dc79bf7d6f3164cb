"""prime-rl's keys. Read in v0.8.0 and in 559b447 (after v0.8.1.dev67) of github.com/PrimeIntellect-ai/prime-rl, older
names in v0.5.0, below ``src/prime_rl/``:

trainer/rl/train.py            what the trainer logs: loss, entropy, mismatch, gradient, speed, memory
trainer/rl/loss.py             compute_importance_ratio_and_mismatch_kl, the masks of the trust region
trainer/utils.py               statistics over all tokens of all ranks, and which of them are logged
orchestrator/metrics.py        rewards, lengths, turns by agent; ``all`` is what has arrived, ``effective`` what is kept
orchestrator/orchestrator.py   staleness, tokens, rollouts, time

Trainer and orchestrator are two processes, and each logs its own part. An environment with one agent calls it
``agent``: its reward and truncation are those of the run.
"""

from __future__ import annotations

from rlexporter.catalog.frameworks.entries import feeds, no_metric, statistics
from rlexporter.model.framework import Framework

_GIB = float(2**30)
_ALL, _KEPT = "train/agg/all", "train/agg/effective"

_TRAINER = (
    *feeds("rl_micro_batch_loss_mean", "loss/mean"),
    *feeds("rl_entropy_per_token", "entropy/all/mean", "entropy/mean"),
    *feeds("rl_rollout_kl_per_token", "mismatch_kl/all/mean"),
    *feeds("rl_trust_region_masked_fraction", "is_masked/mean"),
    *feeds("rl_trust_region_side_fraction", "is_masked_{side}/mean"),
    *feeds("rl_learning_rate", "optim/lr"),
    *feeds("rl_grad_norm", "optim/grad_norm"),
    *feeds("rl_training_tokens_per_second_per_gpu", "perf/throughput_per_gpu"),
    *feeds("rl_gpu_memory_reserved_max_bytes", "perf/peak_memory", scale=_GIB),
    *feeds("rl_step_time_seconds", "time/step"),
    *feeds("rl_phase_time_seconds", "time/{phase}"),
)

_ORCHESTRATOR = (
    *statistics("rl_reward_", f"{_ALL}/agent/reward"),
    *feeds("rl_kept_reward_mean", f"{_KEPT}/agent/reward/mean"),
    *feeds("rl_completion_truncated_fraction", f"{_ALL}/agent/is_truncated/mean"),
    *feeds("rl_agent_reward", f"{_ALL}/{{agent}}/reward/{{statistic}}"),
    *feeds("rl_solved_fraction", f"{_ALL}/{{agent}}/solved_{{outcome}}"),
    *statistics("rl_completion_length_", f"{_ALL}/num_output_tokens"),
    *statistics("rl_sequence_length_", f"{_ALL}/num_total_tokens"),
    *statistics("rl_turns_", f"{_ALL}/num_turns"),
    *feeds("rl_sample_staleness_mean", "off_policy/mean"),
    *feeds("rl_sample_staleness_max", "off_policy/max"),
    *feeds("rl_evicted_samples", "off_policy/{reason}"),
    *feeds("rl_step_tokens", "progress/tokens"),
    *feeds("rl_step_samples", "progress/rollouts", "progress/samples"),
    *feeds("rl_eval_score", "eval/{dataset}/effective/{score}/{statistic}"),
)

_OLDER = (
    *feeds("rl_reward_mean", "reward/all/mean"),
    *feeds("rl_completion_length_mean", "decode_len/all/mean"),
    *feeds("rl_sequence_length_mean", "seq_len/all/mean"),
    *feeds("rl_completion_truncated_fraction", "is_truncated/all/mean"),
    *feeds("rl_turns_mean", "num_turns/all/mean"),
)
"""Of v0.5 and before. Its largest and smallest are those of the means of problems, and are left out."""

PRIME_RL = Framework(
    name="prime-rl",
    title="prime-rl",
    marks=frozenset(
        ("mismatch_kl/all/mean", f"{_ALL}/num_output_tokens/mean", "progress/rollouts", "decode_len/all/mean")
    ),
    source="prime-rl v0.5.0 to 559b447 (github.com/PrimeIntellect-ai/prime-rl): src/prime_rl/trainer, orchestrator",
    keys=(*_TRAINER, *_ORCHESTRATOR, *_OLDER, *no_metric("step")),
)
