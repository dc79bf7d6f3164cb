"""NeMo-RL: `Logger`, its one way out of the driver process, which hands each line to its backends.

Written for `nemo_rl/utils/logger.py` of NeMo-RL v0.3.0 to v0.7.0: `log_hyperparams(params)` is handed the whole
configuration, `log_metrics(metrics, step, prefix, step_metric, step_finished)` the parts of each step, under any number
of backends. After v0.7.0 `finish()` comes at the end; before, the end is that of the process.
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

NAME = "nemo_rl"
_SETUP = "timing/setup"
"""The prefix of what is measured before the first step."""
_ALGORITHMS = {"gae": "ppo", "reinforce_plus_plus": "reinforce++", "raw_reward": "reinforce"}
_SETTINGS = {
    "num_generations": ("grpo.num_generations_per_prompt", "ppo.num_generations_per_prompt"),
    "max_steps": ("grpo.max_num_steps", "ppo.max_num_steps"),
    "num_train_epochs": ("grpo.max_num_epochs", "ppo.max_num_epochs"),
    "ppo_epochs": ("ppo.ppo_epochs",),
    "gamma": ("ppo.adv_estimator.gae_gamma",),
    "lam": ("ppo.adv_estimator.gae_lambda",),
    "temperature": ("policy.generation.temperature",),
    "top_p": ("policy.generation.top_p",),
    "top_k": ("policy.generation.top_k",),
    "max_completion_length": ("policy.generation.max_new_tokens",),
    "max_prompt_length": ("data.max_input_seq_length",),
    "learning_rate": ("policy.optimizer.kwargs.lr", "policy.megatron_cfg.optimizer.lr"),
    "weight_decay": ("policy.optimizer.kwargs.weight_decay", "policy.megatron_cfg.optimizer.weight_decay"),
    "max_grad_norm": ("policy.max_grad_norm",),
    "epsilon": ("loss_fn.ratio_clip_min",),
    "epsilon_high": ("loss_fn.ratio_clip_max",),
    "beta": ("loss_fn.reference_policy_kl_penalty",),
}
"""Settings of TRL that NeMo-RL has too, with the same meaning, and where they are in its configuration."""


def watch_logger(module: ModuleType, sources: Sources) -> None:
    """Read what `Logger` logs. ``module``: `nemo_rl.utils.logger`."""
    configs: weakref.WeakKeyDictionary[Any, Mapping[str, Any]] = weakref.WeakKeyDictionary()

    def configured(logger: Any, params: Mapping[str, Any]) -> None:
        configs[logger] = params

    def log(
        logger: Any,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        if prefix == _SETUP or (step_metric and step_metric in metrics):  # a clock of its own: the watch over GPUs
            return
        below = f"{prefix}/" if prefix else ""
        line = {below + key: value for key, value in metrics.items() if not isinstance(value, Mapping)}
        config = configs.get(logger)
        sources.log(NAME, lambda: _facts(config, below, int(step)), line, int(step), whole=step_finished)

    def finish(logger: Any, *_: Any, **__: Any) -> None:
        linger_in_actor(sources.end(NAME))

    watch(module.Logger, "log_hyperparams", configured)
    watch(module.Logger, "log_metrics", log)
    if hasattr(module.Logger, "finish"):
        watch(module.Logger, "finish", finish)


def _facts(config: Any, below: str, step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    found = settings_at(config, _SETTINGS)
    if at(config, "loss_fn.use_kl_in_reward"):
        found["kl_coef"], found["beta"] = found["beta"], 0.0
    algorithm = _algorithm(config)
    learns_values = at(config, "ppo.adv_estimator.name") == "gae"
    by_sequence = bool(at(config, "loss_fn.sequence_level_importance_ratios"))
    validates = below.startswith(("validation", "timing/validation"))
    return of_framework(
        found,
        framework="nemo-rl",
        algorithm=algorithm,
        judged_as="ppo" if learns_values else family(algorithm),
        name=at(config, "logger.wandb.name"),
        model=at(config, "policy.model_name"),
        prompts=first_at(config, "grpo.num_prompts_per_step", "ppo.num_prompts_per_step"),
        step=step if validates else step - 1,
        loss_type="cispo" if at(config, "loss_fn.use_cispo") else "",
        importance_sampling_level="sequence" if by_sequence else "",
    )


def _algorithm(config: Any) -> str:
    """Return the algorithm: GSPO by its ratios, else the estimator of advantages, else the section that there is."""
    if at(config, "loss_fn.sequence_level_importance_ratios"):
        return "gspo"
    for section in ("grpo", "ppo"):
        if at(config, section) is not None:
            estimator = str(at(config, f"{section}.adv_estimator.name") or section)
            return _ALGORITHMS.get(estimator, estimator)
    return next((each for each in ("dpo", "rm", "sft", "distillation") if at(config, each) is not None), "")
