"""OpenRLHF's keys. Read in release 0.11.2 (pip) and in v0.9.0 to v0.11.0 of github.com/OpenRLHF/OpenRLHF, below
``openrlhf/``:

trainer/ppo_trainer.py                  rollout statistics, timing, evaluation
trainer/ray/ppo_actor.py                what is logged of an update, and how micro-batches are averaged
trainer/ray/ppo_critic.py               the critic
trainer/ppo_utils/experience_maker.py   rewards, returns and KL before the update
trainer/ppo_utils/samples_generator.py  lengths and truncation
models/loss.py, models/utils.py         clip fraction, ppo_kl, vllm_kl, and the estimators of KL
utils/logging_utils.py                  prefixes

W&B and TensorBoard have ``train/`` and ``eval/`` before the keys, console lines have the bare ones. ``kl`` is by the
estimator of ``--algo.kl.estimator`` (k1 by default): over tokens in the loss (``--algo.kl.use_loss``), else the mean of
the means of completions. ``logprobs_diff`` beside it (from 0.10) is always k1. Both are 0 without a reference.
"""

from __future__ import annotations

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.catalog.frameworks.entries import below, feeds, no_metric
from rlexporter.model.framework import Framework

_TRAIN = (
    *feeds("rl_reward_mean", "reward", "rollout/reward_mean"),
    *feeds("rl_reward_std", "rollout/reward_std"),
    *feeds("rl_reward_group_std", "group_reward_std"),
    *feeds("rl_rlhf_reward", "return", families=(PPO,)),
    *feeds("rl_shaped_reward_mean", "return", families=(GRPO,)),
    *feeds("rl_kl_estimate_per_token", "kl", nothing=0.0),
    *feeds("rl_kl_k1_per_token", "logprobs_diff", nothing=0.0),
    *feeds("rl_policy_policykl", "ppo_kl"),
    *feeds("rl_policy_clipfrac", "ppo_clip_ratio", families=(PPO,)),
    *feeds("rl_clip_ratio_region_mean", "ppo_clip_ratio", families=(GRPO,)),
    *feeds("rl_policy_loss", "policy_loss"),
    *feeds("rl_update_entropy_per_token", "entropy_loss"),
    *feeds("rl_grad_norm", "actor_grad_norm"),
    *feeds("rl_learning_rate", "actor_lr"),
    *feeds("rl_value_loss", "critic_loss"),
    *feeds("rl_value_prediction", "values"),
    *feeds("rl_value_grad_norm", "critic_grad_norm"),
    *feeds("rl_value_learning_rate", "critic_lr"),
    *feeds("rl_sampling_kl_per_token", "vllm_kl"),
    *feeds("rl_sampling_filtered_fraction", "is_filter_ratio"),
    *feeds("rl_completion_length_mean", "response_length", "rollout/response_length_mean"),
    *feeds("rl_completion_truncated_fraction", "truncated", "rollout/truncated_rate"),
    *feeds("rl_sequence_length_mean", "total_length"),
    *feeds("rl_sequence_limit_fraction", "response_clip_ratio"),
    *feeds("rl_step_samples", "rollout/num_samples"),
    *feeds("rl_step_time_seconds", "timing/step_total"),
    *feeds("rl_phase_time_seconds", "timing/{phase}"),
)

_EVAL = (
    *feeds("rl_validation_length_mean", "eval_response_length_mean"),
    *feeds("rl_validation_truncated_fraction", "eval_truncated_rate"),
    *feeds("rl_eval_best_reward", "eval_{dataset}_pass{attempts}"),
)

_MARKS = ("actor_lr", "ppo_clip_ratio")

OPENRLHF = Framework(
    name="openrlhf",
    title="OpenRLHF",
    marks=frozenset((*_MARKS, *(f"train/{each}" for each in _MARKS))),
    critic=frozenset(("critic_loss", "train/critic_loss")),
    source="OpenRLHF 0.9.0 to 0.11.2 (pip, github.com/OpenRLHF/OpenRLHF): openrlhf/trainer, openrlhf/models",
    keys=(
        *below("train/", _TRAIN),
        *_TRAIN,
        *below("eval/", _EVAL),
        *no_metric("train/global_step", "eval/global_step"),
    ),
)
