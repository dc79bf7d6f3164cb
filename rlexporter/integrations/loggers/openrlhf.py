"""OpenRLHF: `WandbLogger` and `TensorboardLogger`, its ways out of the trainer's process, an actor of Ray.

Written for `openrlhf/utils/logging_utils.py` of OpenRLHF 0.10 to 0.11.2: each is made with all arguments, has
`log_train(global_step, logs_dict)` and `log_eval`, and `close()` at the end. The classes are not documented. A trainer
that has both calls one after the other with the same line: the one that is first is read, until it is closed.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.catalog import family
from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import at, first_at, linger_in_actor, of_framework, settings_at
from rlexporter.model.step import RunFacts

NAME = "openrlhf"
_SAMPLES = "generated_samples"
"""The key of a text with its reward, which is no metric."""
_ALGORITHMS = {
    "gae": "ppo",
    "reinforce": "reinforce++",
    "reinforce_baseline": "reinforce++-baseline",
    "group_norm": "grpo",
    "dr_grpo": "dr-grpo",
}
_SETTINGS = {
    "num_generations": ("rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    "temperature": ("rollout.temperature", "temperature"),
    "top_p": ("rollout.top_p", "top_p"),
    "learning_rate": ("actor.adam.lr", "actor_learning_rate"),
    "weight_decay": ("actor.adam.weight_decay",),
    "max_grad_norm": ("actor.max_norm", "max_norm"),
    "ppo_epochs": ("train.max_epochs", "max_epochs"),
    "num_train_epochs": ("train.num_episodes", "num_episodes"),
    "entropy_coef": ("actor.entropy_coef", "entropy_loss_coef"),
    "max_completion_length": ("rollout.max_new_tokens",),
    "gamma": ("algo.advantage.gamma", "gamma"),
    "lam": ("algo.advantage.lambd", "lambd"),
    "cliprange_value": ("critic.value_clip", "value_clip"),
    "logging_steps": ("logger.logging_steps", "logging_steps"),
}
"""Settings of TRL that OpenRLHF has too, with the same meaning, and where its arguments hold them, now and to 0.10."""


def watch_loggers(module: ModuleType, sources: Sources) -> None:
    """Read what both loggers log. ``module``: `openrlhf.utils.logging_utils`."""
    lines = _Lines(sources)
    for name in ("WandbLogger", "TensorboardLogger"):
        logger = getattr(module, name, None)
        if logger is not None:
            watch(logger, "__init__", lines.made)
            watch(logger, "log_train", lines.train)
            watch(logger, "log_eval", lines.evaluation)
            watch(logger, "close", lines.close)


class _Lines:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._args: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """The arguments of the training, by logger."""
        self._first: weakref.ref[Any] | None = None
        """The logger that is read."""

    def made(self, logger: Any, args: Any) -> None:
        self._args[logger] = args

    def train(self, logger: Any, global_step: int, logs_dict: Mapping[str, Any]) -> None:
        self._log(logger, "train/", int(global_step), logs_dict)

    def evaluation(self, logger: Any, global_step: int, logs_dict: Mapping[str, Any]) -> None:
        self._log(logger, "eval/", int(global_step), logs_dict)

    def close(self, logger: Any) -> None:
        if self._reads(logger):
            linger_in_actor(self._sources.end(NAME))

    def _reads(self, logger: Any) -> bool:
        if self._first is None or self._first() is None:
            self._first = weakref.ref(logger)
        return self._first() is logger

    def _log(self, logger: Any, prefix: str, step: int, logs: Mapping[str, Any]) -> None:
        if self._reads(logger):
            line = {prefix + key: value for key, value in logs.items() if key != _SAMPLES and value is not None}
            args = self._args.get(logger)
            self._sources.log(NAME, lambda: _facts(args, prefix, step), line, step, whole=True)


def _facts(args: Any, prefix: str, step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    found = settings_at(args, _SETTINGS)
    clip = first_at(args, "actor.eps_clip_low_high", "eps_clip_low_high")
    plain = first_at(args, "actor.eps_clip", "eps_clip")
    found["epsilon"], found["epsilon_high"] = clip if clip else (plain, plain)
    coefficient = first_at(args, "algo.kl.init_coef", "init_kl_coef")
    in_loss = first_at(args, "algo.kl.use_loss", "use_kl_loss")
    found["kl_coef"] = None if in_loss else coefficient
    if args is not None:
        found["beta"] = coefficient if in_loss else 0.0
    loss = first_at(args, "actor.policy_loss_type", "policy_loss_type")
    estimator = str(first_at(args, "algo.advantage.estimator", "advantage_estimator") or "")
    algorithm = "gspo" if loss == "gspo" else _ALGORITHMS.get(estimator, estimator)
    return of_framework(
        found,
        framework="openrlhf",
        algorithm=algorithm,
        judged_as=family("ppo" if estimator == "gae" else algorithm),
        name=first_at(args, "logger.wandb.run_name", "wandb_run_name"),
        model=first_at(args, "actor.model_name_or_path", "pretrain"),
        prompts=first_at(args, "rollout.batch_size", "rollout_batch_size"),
        step=step if prefix == "eval/" else step - int(found["logging_steps"] or 1),
        loss_type=str(at(args, "actor.loss_agg_mode") or ""),
        importance_sampling_level="sequence" if algorithm == "gspo" else "",
    )
