"""verl. Read in release 0.9.1, below ``verl/``; older names were read in 0.2 to 0.8.

trainer/ppo/metric_utils.py         scores, rewards, advantages, returns, values, lengths, timing, throughput; experts
                                    (``rollout/moe``, after 0.9.1, in 1dda039 of github.com/verl-project/verl)
trainer/ppo/core_algos.py           clip fractions and ppo_kl of each loss
trainer/ppo/ray_trainer.py          KL penalty in the reward, epochs
trainer/ppo/v1/trainer_base.py      staleness of trajectories, turns, evicted samples
trainer/ppo/rollout_corr_helper.py  rollout_corr: importance weights, rejection, perplexities
workers/utils/losses.py             losses, kl_loss, entropy: means if ``loss_agg_mode`` is one (``token-mean``...)
workers/engine_workers.py           memory, MFU, learning rate
utils/debug/metrics.py              differences of probabilities between rollout and trainer
utils/seqlen_balancing.py           tokens of each rank
utils/tracking.py                   `Tracking`, its one way out of the driver process

`Tracking.__init__` gets the whole configuration, `log(data, step)` every line, and the trainer calls
`finish(exit_code)` at its end; older versions have no `finish`. The class is not documented, but trainers and recipes
import it by this name.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.frameworks.common import (
    Feed,
    Line,
    after_call,
    as_logged,
    at,
    correction,
    feeds,
    no_metric,
    of_framework,
    settings_at,
    statistics,
)
from rlexporter.model.metric import Framework
from rlexporter.model.step import RunFacts

_GIB = float(2**30)

_REWARD = (
    *feeds("rl_reward_mean", "critic/score/mean"),
    *as_logged("critic/score/min", "critic/score/max"),
    *feeds("rl_rlhf_reward", "critic/rewards/mean"),
    *as_logged("critic/rewards/min", "critic/rewards/max"),
    *feeds("rl_advantage_mean", "critic/advantages/mean", families=(PPO,)),
    *feeds("rl_token_advantage_mean", "critic/advantages/mean", families=(GRPO,)),
    *as_logged("critic/advantages/min", "critic/advantages/max"),
    *feeds("rl_return_mean", "critic/returns/mean"),
    *as_logged("critic/returns/min", "critic/returns/max"),
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
    *feeds("rl_value_mean", "critic/values/mean"),
    *as_logged("critic/values/min", "critic/values/max"),
    *feeds("rl_value_explained_variance", "critic/vf_explained_var"),
    *feeds("rl_value_loss", "critic/vf_loss"),
    *feeds("rl_value_clipfrac", "critic/vf_clipfrac"),
    *feeds("rl_value_prediction", "critic/vpred_mean"),
    *feeds("rl_value_grad_norm", "critic/grad_norm"),
    *as_logged("critic/lr", "critic/learning_rate"),
)

_LENGTHS = (
    *statistics("rl_completion_length_", "response_length/"),
    *as_logged(
        "response_length_non_aborted/mean",
        "response_length_non_aborted/min",
        "response_length_non_aborted/max",
        "response_length_non_aborted/clip_ratio",
    ),
    *feeds("rl_completion_empty_fraction", "response/aborted_ratio"),
    *feeds("rl_prompt_length_mean", "prompt_length/mean"),
    *as_logged(
        "prompt_length/min",
        "prompt_length/max",
        "prompt_length/clip_ratio",
        "num_turns/mean",
        "num_turns/min",
        "num_turns/max",
        "training/num_turns/mean",
        "training/num_turns/min",
        "training/num_turns/max",
    ),
    *as_logged("tool_call_counts/mean"),
    *as_logged("tool_call_counts/min", "tool_call_counts/max"),
)

_IS = "rollout_corr/rollout_is"
_SAMPLER = (
    *as_logged("training/rollout_probs_diff_mean"),
    *as_logged("training/rollout_probs_diff_max", "training/rollout_probs_diff_std"),
    *as_logged("training/rollout_actor_probs_pearson_corr"),
    *as_logged("training/rollout_probs_diff_valid"),
    *correction("rollout_corr"),
    *feeds("rl_sampling_chi2_per_sequence", "rollout_corr/chi2_seq"),
    *statistics("rl_sampling_weight_", f"{_IS}_", "mean"),
    *as_logged(f"{_IS}_std"),
    *as_logged(
        f"{_IS}_min", f"{_IS}_max", f"{_IS}_ratio_fraction_high", f"{_IS}_ratio_fraction_low", f"{_IS}_oob_ratio"
    ),
    *feeds("rl_sampling_effective_sample_fraction", f"{_IS}_eff_sample_size"),
    *as_logged(
        f"{_IS}_batch_norm_factor",
        f"{_IS}_seq_mean",
        f"{_IS}_seq_std",
        f"{_IS}_seq_min",
        f"{_IS}_seq_max",
        f"{_IS}_seq_max_deviation",
        f"{_IS}_seq_fraction_high",
        f"{_IS}_seq_fraction_low",
    ),
    *as_logged("rollout_corr/rollout_rs_masked_fraction"),
    *as_logged("rollout_corr/rollout_rs_seq_masked_fraction", "rollout_corr/rollout_rs_{statistic}"),
    *feeds("rl_sample_staleness_mean", "training/off_policy/trajectory_staleness/mean"),
    *as_logged("training/off_policy/trajectory_staleness/min", "training/off_policy/trajectory_staleness/max"),
    *as_logged("training/{reason}/evicted_samples"),
    *as_logged("rollout/moe/max_vio/avg"),
)

_AGENT_LOOP = "timing_s/agent_loop"
_SPEED = (
    *feeds("rl_step_time_seconds", "perf/time_per_step"),
    *feeds("rl_phase_time_seconds", "timing_s/{phase}"),
    *as_logged(f"{_AGENT_LOOP}/slowest/{{tokens}}_length"),
    *no_metric(f"{_AGENT_LOOP}/slowest/num_preempted"),
    *as_logged(f"{_AGENT_LOOP}/slowest/{{part}}", f"{_AGENT_LOOP}/num_preempted/{{statistic}}"),
    *as_logged(f"{_AGENT_LOOP}/{{part}}/{{statistic}}"),
    *as_logged(
        "timing_per_token_ms/{phase}",
        "perf/throughput",
        "perf/total_num_tokens",
        "perf/mfu/{role}",
        "perf/max_memory_allocated_gb",
        "perf/max_memory_reserved_gb",
        "perf/cpu_memory_used_gb",
        "global_seqlen/mean",
        "global_seqlen/min",
        "global_seqlen/max",
        "global_seqlen/balanced_min",
        "global_seqlen/balanced_max",
        "global_seqlen/minmax_diff",
    ),
)

_BOTH = (
    *(*_REWARD, *_POLICY, *_CRITIC, *_LENGTHS, *_SAMPLER, *_SPEED),
    *as_logged("training/epoch"),
    *feeds("rl_eval_score", "val-core/{dataset}/{score}/{statistic}", "val-aux/{dataset}/{score}/{statistic}"),
    *no_metric("training/global_step"),
)

VERL = Framework(
    name="verl",
    title="verl",
    marks=frozenset(("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/pg_clipfrac_lower")),
    critic=frozenset(("critic/vf_loss", "critic/values/mean", "critic/vf_explained_var")),
    source="verl 0.2 to 0.9.1 (pip) and 1dda039: verl/trainer/ppo, verl/workers, verl/utils",
    keys=(*_BOTH, *feeds("rl_completion_truncated_fraction", "response_length/clip_ratio")),
)

VERL_V1 = replace(
    VERL,
    name="verl-v1",
    title="verl, trainer V1 (the default from 0.9)",
    marks=frozenset(("training/off_policy/trajectory_spans/mean",)),
    keys=(*_BOTH, *as_logged("response_length/clip_ratio")),
)
"""Pads completions to the longest of the step, so that the key does not tell how many were cut off by the limit."""
TABLES = (VERL_V1, VERL)

_VALIDATION = "val"
"""How keys of a validation begin in all versions: ``val/``, ``val-core/``, ``val-aux/``."""
_AGGREGATION = "actor_rollout_ref.actor.loss_agg_mode"
"""The setting that says how the losses of tokens are aggregated to that of a batch."""
_AGGREGATED = frozenset(("actor/entropy", "actor/entropy_loss", "actor/kl_loss"))
"""The keys of values that are aggregated over tokens as the loss is."""
_SETTINGS = {
    "num_generations": "actor_rollout_ref.rollout.n",
    "temperature": "actor_rollout_ref.rollout.temperature",
    "top_p": "actor_rollout_ref.rollout.top_p",
    "top_k": "actor_rollout_ref.rollout.top_k",
    "learning_rate": "actor_rollout_ref.actor.optim.lr",
    "weight_decay": "actor_rollout_ref.actor.optim.weight_decay",
    "max_grad_norm": "actor_rollout_ref.actor.grad_clip",
    "ppo_epochs": "actor_rollout_ref.actor.ppo_epochs",
    "epsilon": "actor_rollout_ref.actor.clip_ratio_low",
    "epsilon_high": "actor_rollout_ref.actor.clip_ratio_high",
    "entropy_coef": "actor_rollout_ref.actor.entropy_coeff",
    "max_prompt_length": "data.max_prompt_length",
    "max_completion_length": "data.max_response_length",
    "gamma": "algorithm.gamma",
    "lam": "algorithm.lam",
    "max_steps": "trainer.total_training_steps",
    "num_train_epochs": "trainer.total_epochs",
}
"""Settings of TRL that verl has too, with the same meaning, and where they are in its configuration."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what `Tracking` logs. ``module``: `verl.utils.tracking`."""
    tracking = module.Tracking

    def made(
        self: Any, project_name: Any, experiment_name: Any, default_backend: Any = None, config: Any = None
    ) -> None:
        vars(self)["_rlexporter"] = (experiment_name, config)

    def log(self: Any, data: Line, step: Any, *_: Any, **__: Any) -> None:
        name, config = vars(self).get("_rlexporter", (None, None))
        feed.log(lambda: _facts(name, config, data, int(step)), _without_sums(config, data), int(step), whole=True)

    def finish(self: Any, exit_code: int = 0) -> None:
        error = sys.exc_info()[1] or RuntimeError(f"exit code {exit_code}")
        feed.end(error if exit_code else None, lingers=True)

    after_call(tracking, "__init__", made)
    after_call(tracking, "log", log)
    if hasattr(tracking, "finish"):
        after_call(tracking, "finish", finish)
        # `__del__` calls `finish` too, and knows nothing of how the training ended.
        after_call(tracking, "__del__", lambda tracking: None)


def _without_sums(config: Any, line: Line) -> Line:
    """Return ``line`` with other keys for values that are sums over a completion, where others log means over tokens.

    Only the configuration tells: see `agg_loss` in `verl/trainer/ppo/core_algos.py`. A sum grows with the length, so
    that no limit on a mean fits it.
    """
    mode = str(at(config, _AGGREGATION) or "")
    if "token-sum" not in mode:
        return line
    return {f"{key} ({mode})" if key in _AGGREGATED else key: value for key, value in line.items()}


def _facts(name: Any, config: Any, line: Line, step: int) -> RunFacts:
    """Return the facts of a run whose first line is that of ``step``."""
    settings = settings_at(config, _SETTINGS)
    settings["kl_coef"] = at(config, "algorithm.kl_ctrl.kl_coef") if at(config, "algorithm.use_kl_in_reward") else None
    if config is not None:
        in_loss = at(config, "actor_rollout_ref.actor.use_kl_loss")
        settings["beta"] = at(config, "actor_rollout_ref.actor.kl_loss_coef") if in_loss else 0.0
    validates = all(str(key).startswith(_VALIDATION) for key in line)
    return of_framework(
        VERL_V1.name if at(config, "trainer.use_v1") else VERL.name,
        settings,
        _algorithm(config),
        name=name,
        model=at(config, "actor_rollout_ref.model.path"),
        prompts=at(config, "data.train_batch_size"),
        step=step if validates else step - 1,
        trainer="verl",
        loss_type=str(at(config, _AGGREGATION) or ""),
    )


def _algorithm(config: Any) -> str:
    """Return the algorithm: GSPO by its loss, PPO for advantages by GAE, else the estimator of advantages."""
    if at(config, "actor_rollout_ref.actor.policy_loss.loss_mode") == "gspo":
        return "gspo"
    estimator = at(config, "algorithm.adv_estimator")
    name = str(getattr(estimator, "value", estimator) or "").lower().replace("_", "-")
    return "ppo" if name == "gae" else name
