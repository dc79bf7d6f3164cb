"""OpenRLHF. Read in release 0.11.2 (pip) and in v0.9.0 to v0.11.0 of github.com/OpenRLHF/OpenRLHF, below
``openrlhf/``:

trainer/ppo_trainer.py                  rollout statistics, timing, evaluation
trainer/ray/ppo_actor.py                what is logged of an update, and how micro-batches are averaged
trainer/ray/ppo_critic.py               the critic
trainer/ppo_utils/experience_maker.py   rewards, returns and KL before the update
trainer/ppo_utils/samples_generator.py  lengths and truncation
models/loss.py, models/utils.py         clip fraction, ppo_kl, vllm_kl, and the estimators of KL
utils/logging_utils.py                  `WandbLogger` and `TensorboardLogger`, the ways out of an actor of Ray

W&B and TensorBoard have ``train/`` and ``eval/`` before the keys, console lines have the bare ones. ``kl`` is by the
estimator of ``--algo.kl.estimator`` (k1 by default): over tokens in the loss (``--algo.kl.use_loss``), else the mean of
the means of completions. ``logprobs_diff`` beside it (from 0.10) is always k1. Both are 0 without a reference.

Each logger is built with all arguments, has `log_train(global_step, logs_dict)` and `log_eval`, and is closed at the
end. The classes are not documented. A trainer with both hands each line to one after the other: only the first is read,
until it is closed.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.frameworks.common import (
    Feed,
    Line,
    after_call,
    as_logged,
    at,
    below,
    feeds,
    no_metric,
    of_framework,
    settings_at,
)
from rlexporter.model.metric import Framework
from rlexporter.model.step import RunFacts

_TRAIN = (
    *feeds("rl_reward_mean", "reward", "rollout/reward_mean"),
    *feeds("rl_reward_std", "rollout/reward_std"),
    *as_logged("group_reward_std"),
    *feeds("rl_rlhf_reward", "return", families=(PPO,)),
    *as_logged("return", families=(GRPO,)),
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
    *as_logged("critic_lr"),
    *feeds("rl_sampling_kl_per_token", "vllm_kl"),
    *as_logged("is_filter_ratio"),
    *feeds("rl_completion_length_mean", "response_length", "rollout/response_length_mean"),
    *feeds("rl_completion_truncated_fraction", "truncated", "rollout/truncated_rate"),
    *as_logged("total_length", "response_clip_ratio"),
    *as_logged("rollout/num_samples"),
    *feeds("rl_step_time_seconds", "timing/step_total"),
    *feeds("rl_phase_time_seconds", "timing/{phase}"),
)

_EVAL = (*as_logged("eval_response_length_mean", "eval_truncated_rate", "eval_{dataset}_pass{attempts}"),)

_MARKS = ("actor_lr", "ppo_clip_ratio")

OPENRLHF = Framework(
    name="openrlhf",
    title="OpenRLHF",
    marks=frozenset((*_MARKS, *(f"train/{mark}" for mark in _MARKS))),
    critic=frozenset(("critic_loss", "train/critic_loss")),
    source="OpenRLHF 0.9.0 to 0.11.2 (pip, github.com/OpenRLHF/OpenRLHF): openrlhf/trainer, openrlhf/models",
    keys=(
        *below("train/", _TRAIN),
        *_TRAIN,
        *below("eval/", _EVAL),
        *no_metric("train/global_step", "eval/global_step"),
    ),
)
TABLES = (OPENRLHF,)

_SAMPLES = "generated_samples"
"""The key of a text and its reward, which is no metric."""
_ALGORITHMS = {
    "gae": "ppo",
    "reinforce": "reinforce++",
    "reinforce_baseline": "reinforce++-baseline",
    "group_norm": "grpo",
    "dr_grpo": "dr-grpo",
}
_SETTINGS = {
    "num_generations": "rollout.n_samples_per_prompt n_samples_per_prompt",
    "temperature": "rollout.temperature temperature",
    "top_p": "rollout.top_p top_p",
    "learning_rate": "actor.adam.lr actor_learning_rate",
    "weight_decay": "actor.adam.weight_decay",
    "max_grad_norm": "actor.max_norm max_norm",
    "ppo_epochs": "train.max_epochs max_epochs",
    "num_train_epochs": "train.num_episodes num_episodes",
    "entropy_coef": "actor.entropy_coef entropy_loss_coef",
    "max_completion_length": "rollout.max_new_tokens",
    "gamma": "algo.advantage.gamma gamma",
    "lam": "algo.advantage.lambd lambd",
    "cliprange_value": "critic.value_clip value_clip",
    "logging_steps": "logger.logging_steps logging_steps",
}
"""Settings of TRL that OpenRLHF has too, with the same meaning, and where its arguments hold them, now and to 0.10."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what both loggers log. ``module``: `openrlhf.utils.logging_utils`."""
    given: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    """The arguments of the training, by logger."""
    first: list[weakref.ref[Any]] = []
    """The logger that is read."""

    def reads(logger: Any) -> bool:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(logger)]
        return first[0]() is logger

    def made(logger: Any, args: Any) -> None:
        given[logger] = args

    def log(prefix: str, logger: Any, global_step: int, logs_dict: Line) -> None:
        if reads(logger):
            step, args = int(global_step), given.get(logger)
            line = {prefix + key: value for key, value in logs_dict.items() if key != _SAMPLES and value is not None}
            feed.log(lambda: _facts(args, prefix, step), line, step, whole=True)

    def train(*args: Any, **named: Any) -> None:
        log("train/", *args, **named)

    def evaluation(*args: Any, **named: Any) -> None:
        log("eval/", *args, **named)

    def close(logger: Any) -> None:
        if reads(logger):
            feed.end(lingers=True)

    for name in ("WandbLogger", "TensorboardLogger"):
        if (logger := getattr(module, name, None)) is not None:
            after_call(logger, "__init__", made)
            after_call(logger, "log_train", train)
            after_call(logger, "log_eval", evaluation)
            after_call(logger, "close", close)


def _facts(args: Any, prefix: str, step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    settings = settings_at(args, _SETTINGS)
    clip = at(args, "actor.eps_clip_low_high", "eps_clip_low_high")
    plain = at(args, "actor.eps_clip", "eps_clip")
    settings["epsilon"], settings["epsilon_high"] = clip if clip else (plain, plain)
    coefficient = at(args, "algo.kl.init_coef", "init_kl_coef")
    in_loss = at(args, "algo.kl.use_loss", "use_kl_loss")
    settings["kl_coef"] = None if in_loss else coefficient
    if args is not None:
        settings["beta"] = coefficient if in_loss else 0.0
    loss = at(args, "actor.policy_loss_type", "policy_loss_type")
    estimator = str(at(args, "algo.advantage.estimator", "advantage_estimator") or "")
    algorithm = "gspo" if loss == "gspo" else _ALGORITHMS.get(estimator, estimator)
    return of_framework(
        OPENRLHF.name,
        settings,
        algorithm,
        judged_as=PPO if estimator == "gae" else "",
        name=at(args, "logger.wandb.run_name", "wandb_run_name"),
        model=at(args, "actor.model_name_or_path", "pretrain"),
        prompts=at(args, "rollout.batch_size", "rollout_batch_size"),
        step=step if prefix == "eval/" else step - int(settings["logging_steps"] or 1),
        loss_type=str(at(args, "actor.loss_agg_mode") or ""),
    )
