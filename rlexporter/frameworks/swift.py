"""ms-swift's own keys; its trainers descend from TRL's, whose keys they log too. Read in 4.6.0, below ``swift/``.

trainers/patcher.py             memory, speed, steps and times that are texts; ``train_speed(iter/s)`` is of 3.x
rlhf_trainers/grpo_trainer.py   entropies, rollout_correction, turns, teachers, FIPO
*_core/advantage.py             sdar

``rollout_correction/chi2_seq`` is made of the geometric mean of a completion's ratios, verl's of their product.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import RLOO
from rlexporter.frameworks.entries import correction, feeds, no_metric, statistics
from rlexporter.model.metric import Framework

_GIB = float(2**30)

_POLICY = (
    *feeds("rl_kl_per_sequence", "kl", families=(RLOO,)),  # a part of the reward: k1, summed over the completion
    *feeds("rl_entropy_per_token", "entropy/mean"),
    *statistics("rl_completion_entropy_", "entropy/", "min", "max"),
    *feeds("rl_entropy_threshold", "entropy/threshold"),
    *feeds("rl_turns_mean", "num_turns"),
    *feeds("rl_teacher_kl_per_token", "teacher_kl"),
    *(key for method in ("fipo", "sdar") for key in feeds(f"rl_{method}", f"{method}/{{statistic}}")),
    *feeds("rl_self_distillation_weight", "rlsd_lambda"),
)

_CORRECTION = "rollout_correction"
_SAMPLER = (
    *correction(_CORRECTION),
    *feeds("rl_sampling_chi2_of_means", f"{_CORRECTION}/chi2_seq"),
    *feeds("rl_sampling_weight_mean", f"{_CORRECTION}/is_weight_mean"),
    *feeds("rl_sampling_effective_sample_fraction", f"{_CORRECTION}/ess"),
    *feeds("rl_sampling_weight_limited_fraction", f"{_CORRECTION}/clipped_frac"),
)

_SPEED = (
    *feeds("rl_gpu_memory_reserved_max_bytes", "memory(GiB)", scale=_GIB),
    *feeds("rl_mean_step_time_seconds", "train_speed(s/it)"),
    *feeds("rl_mean_steps_per_second", "train_speed(iter/s)"),
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
TABLES = (SWIFT,)
