"""ms-swift and Unsloth: their trainers descend from TRL's, whose keys they log too. Here are the keys of their own.

ms-swift 4.6.0, below ``swift/``:
trainers/patcher.py             memory, speed, steps and times that are texts; ``train_speed(iter/s)`` is of 3.x
rlhf_trainers/grpo_trainer.py   entropies, rollout_correction, turns, teachers, FIPO
*_core/advantage.py             sdar

unsloth_zoo 2026.10.9  *_replacements.py           mismatch of rollout and trainer (`grpo_rollout_mismatch_metrics`), kl
unsloth 2026.10.9      models/*_replacements.py    groups that are left out of the loss

``rollout_correction/chi2_seq`` is made of the geometric mean of a completion's ratios, verl's of their product.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import RLOO
from rlexporter.frameworks.common import as_logged, correction, feeds, no_metric
from rlexporter.model.metric import Framework

_GIB = float(2**30)

_POLICY = (
    *feeds("rl_kl_per_sequence", "kl", families=(RLOO,)),  # a part of the reward: k1, summed over the completion
    *feeds("rl_entropy_per_token", "entropy/mean"),
    *as_logged("entropy/min", "entropy/max", "entropy/threshold", "num_turns", "teacher_kl"),
    *as_logged("fipo/{statistic}", "sdar/{statistic}"),
    *as_logged("rlsd_lambda"),
)

_CORRECTION = "rollout_correction"
_SAMPLER = (
    *correction(_CORRECTION),
    *feeds("rl_sampling_chi2_of_means", f"{_CORRECTION}/chi2_seq"),
    *feeds("rl_sampling_weight_mean", f"{_CORRECTION}/is_weight_mean"),
    *feeds("rl_sampling_effective_sample_fraction", f"{_CORRECTION}/ess"),
    *as_logged(f"{_CORRECTION}/clipped_frac"),
)

_SPEED = (
    *as_logged("memory(GiB)", "train_speed(s/it)", "train_speed(iter/s)"),
    *no_metric("global_step/max_steps", "percentage", "elapsed_time", "remaining_time"),
    *no_metric("memory", "model_parameter_info", "log_history"),  # of the line at the end of a training
    *no_metric("best_metric", "best_model_checkpoint", "last_model_checkpoint"),
)

SWIFT = Framework(
    name="ms-swift",
    title="ms-swift",
    marks=frozenset(("global_step/max_steps", "memory(GiB)", "train_speed(s/it)", "train_speed(iter/s)")),
    of_trl=True,
    source="ms-swift 4.6.0 (pip): swift/trainers/patcher.py, swift/rlhf_trainers/grpo_trainer.py",
    keys=(*_POLICY, *_SAMPLER, *_SPEED),
)

_MISMATCH = (
    *feeds("rl_sampling_kl_per_token", "sampling/rollout_kl_k1/mean"),
    *feeds("rl_rollout_kl_per_token", "sampling/rollout_kl_k3/mean"),
    *feeds("rl_rollout_kl_max", "sampling/rollout_kl_k3/max"),
    *feeds("rl_sampling_effective_sample_fraction", "sampling/importance_sampling_ess"),
    *as_logged("sampling/importance_sampling_rejected_frac"),
    *as_logged("sampling/importance_sampling_rejected_seq_frac"),
)

UNSLOTH = Framework(
    name="unsloth",
    title="Unsloth",
    marks=frozenset(
        ("frac_reward_zero_std_excluded", "sampling/rollout_kl_k3/mean", "sampling/importance_sampling_ess")
    ),
    of_trl=True,
    source="unsloth and unsloth_zoo 2026.10.9 (pip): unsloth/models/*_replacements.py, unsloth_zoo/*_replacements.py",
    keys=(*_MISMATCH, *as_logged("frac_reward_zero_std_excluded")),
)
TABLES = (SWIFT, UNSLOTH)
