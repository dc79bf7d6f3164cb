"""NeMo-RL. Read in v0.7.0 of github.com/NVIDIA-NeMo/RL, below ``nemo_rl/``:

algorithms/grpo.py, algorithms/ppo.py     what is logged of a step, and how micro-batches are put together
algorithms/loss/loss_functions.py         ClippedPGLossFn: ratios, KL, mismatch of engines; the value loss of PPO
algorithms/utils.py                       calculate_kl, throughput
experience/rollouts.py                    lengths, turns, truncation; with NeMo Gym, results by agent
models/policy/workers/                    norm of the gradient, learning rate; means over the updates of a step
utils/logger.py                           `Logger`, its one way out of the driver process, under any number of backends

The KL estimators are those of ``loss_fn.reference_policy_kl_type`` (k3 by default), also for ``gen_kl_error`` and
``policy_kl_error``, which compare sampler and trainer. ``kl_penalty`` is 0 without a penalty, and the smallest and
largest ratio -1 in a step without a token. ``training_worker_idle_time_ratio`` is 0 from a tenth of a second on, and
the share of routes that are not replayed is computed but not logged (7ea279a).

`Logger` is that of v0.3.0 to v0.7.0: `log_hyperparams(params)` is handed the whole configuration, `log_metrics(metrics,
step, prefix, step_metric, step_finished)` the parts of each step, which all backends get below the prefix. After v0.7.0
`finish()` comes at the end; before, the end is that of the process.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
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
    of_framework,
    settings_at,
    statistics,
)
from rlexporter.model.metric import Framework
from rlexporter.model.step import RunFacts

_LEARNING = (
    *feeds("rl_reward_mean", "reward"),
    *as_logged("min_total_reward", "total_reward/min", "max_total_reward", "total_reward/max", "filtered_reward"),
    *feeds("rl_agent_reward", "{agent}/reward/{statistic}"),
    *as_logged("baseline_reward/pct_{baseline}"),
    *feeds("rl_advantage_mean", "advantages/mean", families=(PPO,)),
    *feeds("rl_token_advantage_mean", "advantages/mean", families=(GRPO,)),
    *as_logged("advantages/min", "advantages/max"),
    *feeds("rl_kl_per_token", "kl_penalty", families=(GRPO,), nothing=0.0),
    *feeds("rl_kl_loss_per_token", "kl_penalty", families=(PPO,), nothing=0.0),
    *feeds("rl_sampled_entropy_per_token", "approx_entropy"),
    *feeds("rl_policy_ratio_mean", "probs_ratio"),
    *as_logged("probs_ratio_min", "probs_ratio_max", "probs_ratio_clamped"),
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
    *as_logged("critic/lr"),
)

_ENGINES = (
    *feeds("rl_sampling_probability_factor_mean", "token_mult_prob_error"),
    *as_logged("mean_seq_mult_prob_error", "min_seq_mult_prob_error", "max_seq_mult_prob_error"),
    *feeds("rl_rollout_kl_per_token", "gen_kl_error"),
    *feeds("rl_trainer_kl_per_token", "policy_kl_error"),
    *as_logged("js_divergence_error"),
    *feeds("rl_importance_sampling_ratio_mean", "sampling_importance_ratio"),
    *as_logged("is_oob_ratio"),
    *feeds("rl_sample_staleness_mean", "avg_trajectory_age"),
)

_LENGTHS = (
    *feeds("rl_prompt_length_mean", "mean_prompt_length"),
    *statistics("rl_completion_length_", "gen_tokens_per_sample/"),
    *feeds("rl_completion_length_mean", "mean_gen_tokens_per_sample"),
    *feeds("rl_completion_length_max", "max_gen_tokens_per_sample"),
    *feeds("rl_completion_truncated_fraction", "truncation_rate"),
    *as_logged(
        "total_tokens_per_sample/mean",
        "total_tokens_per_sample/min",
        "total_tokens_per_sample/max",
        "mean_total_tokens_per_sample",
        "turns_per_sample/mean",
        "turns_per_sample/min",
        "turns_per_sample/max",
        "avg_turns_per_sample",
        "max_turns_per_sample",
        "total_num_tokens",
    ),
)

_SPEED = (
    *feeds("rl_step_time_seconds", "timing/train/total_step_time"),
    *as_logged("timing/train/valid_tokens_per_sec_per_gpu"),
    *feeds("rl_phase_time_seconds", "timing/train/{phase}", "timing/train/{phase}/total"),
    *as_logged(
        "performance/tokens_per_sec_per_gpu",
        "performance/policy_training_tokens_per_sec_per_gpu",
        "performance/{role}_fp_utilization",
    ),
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
        *as_logged("validation/avg_length"),
    ),
)
TABLES = (NEMO_RL,)

_SETUP = "timing/setup"
"""The prefix of measurements before the first step."""
_ALGORITHMS = {"gae": "ppo", "reinforce_plus_plus": "reinforce++", "raw_reward": "reinforce"}
_SETTINGS = {
    "num_generations": "grpo.num_generations_per_prompt ppo.num_generations_per_prompt",
    "max_steps": "grpo.max_num_steps ppo.max_num_steps",
    "num_train_epochs": "grpo.max_num_epochs ppo.max_num_epochs",
    "ppo_epochs": "ppo.ppo_epochs",
    "gamma": "ppo.adv_estimator.gae_gamma",
    "lam": "ppo.adv_estimator.gae_lambda",
    "temperature": "policy.generation.temperature",
    "top_p": "policy.generation.top_p",
    "top_k": "policy.generation.top_k",
    "max_completion_length": "policy.generation.max_new_tokens",
    "max_prompt_length": "data.max_input_seq_length",
    "learning_rate": "policy.optimizer.kwargs.lr policy.megatron_cfg.optimizer.lr",
    "weight_decay": "policy.optimizer.kwargs.weight_decay policy.megatron_cfg.optimizer.weight_decay",
    "max_grad_norm": "policy.max_grad_norm",
    "epsilon": "loss_fn.ratio_clip_min",
    "epsilon_high": "loss_fn.ratio_clip_max",
    "beta": "loss_fn.reference_policy_kl_penalty",
}
"""Settings of TRL that NeMo-RL has too, with the same meaning, and where they are in its configuration."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what `Logger` logs. ``module``: `nemo_rl.utils.logger`."""
    configs: weakref.WeakKeyDictionary[Any, Line] = weakref.WeakKeyDictionary()

    def configured(logger: Any, params: Line) -> None:
        configs[logger] = params

    def log(
        logger: Any,
        metrics: Line,
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        if prefix == _SETUP or (step_metric and step_metric in metrics):  # a clock of its own: the watch over GPUs
            return
        above = f"{prefix}/" if prefix else ""
        line = {above + key: value for key, value in metrics.items() if not isinstance(value, Mapping)}
        config = configs.get(logger)
        feed.log(lambda: _facts(config, above, int(step)), line, int(step), whole=step_finished)

    def finish(logger: Any, *_: Any, **__: Any) -> None:
        feed.end(lingers=True)

    after_call(module.Logger, "log_hyperparams", configured)
    after_call(module.Logger, "log_metrics", log)
    if hasattr(module.Logger, "finish"):
        after_call(module.Logger, "finish", finish)


def _facts(config: Any, above: str, step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    settings = settings_at(config, _SETTINGS)
    if at(config, "loss_fn.use_kl_in_reward"):
        settings["kl_coef"], settings["beta"] = settings["beta"], 0.0
    algorithm = _algorithm(config)
    learns_values = at(config, "ppo.adv_estimator.name") == "gae"
    validates = above.startswith(("validation", "timing/validation"))
    return of_framework(
        NEMO_RL.name,
        settings,
        algorithm,
        judged_as=PPO if learns_values else "",
        name=at(config, "logger.wandb.name"),
        model=at(config, "policy.model_name"),
        prompts=at(config, "grpo.num_prompts_per_step", "ppo.num_prompts_per_step"),
        step=step if validates else step - 1,
        loss_type="cispo" if at(config, "loss_fn.use_cispo") else "",
    )


def _algorithm(config: Any) -> str:
    """Return the algorithm: GSPO by its ratios, else the estimator of advantages, else the section that exists."""
    if at(config, "loss_fn.sequence_level_importance_ratios"):
        return "gspo"
    for section in ("grpo", "ppo"):
        if at(config, section) is not None:
            estimator = str(at(config, f"{section}.adv_estimator.name") or section)
            return _ALGORITHMS.get(estimator, estimator)
    return next((section for section in ("dpo", "rm", "sft", "distillation") if at(config, section) is not None), "")
