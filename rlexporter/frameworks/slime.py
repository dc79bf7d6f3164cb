"""slime, and miles, which began as a copy of it. Read in THUDM/slime 624b824 and radixark/miles 31f1ca9.

slime/observability/rollout_metrics.py             rollout/ and eval/ of the process that samples, perf/ of sampling
slime/observability/train_metric_utils.py          rollout/, passrate/, multi_turn/ and perf/ of the process that trains
slime/backends/megatron_utils/model.py, loss.py    train/, of each optimizer step; ``critic-`` is the value function
miles/backends/training_utils/log_utils.py, loss_hub/losses.py, miles/ray/rollout/metrics.py, miles/utils/...
slime/observability/logging_utils.py               `log(args, metrics, step_key)`, the one way out of each process

A mean over tokens is by default the mean of the means of completions, as in TRL up to 0.15; with
``--calculate-per-token-loss`` it is over all tokens. The estimator of ``train/kl_loss`` is a setting, by default k1.
What SGLang itself exports (caches, queues, speculative tokens) has no series here.

A process that samples, one that trains, and perhaps a critic each log their part of a step. Each serves its part as a
run of its own, since alerts take the newest process of a name for the only one. Of all that train, only one logs: the
first of the last pipeline stage, whatever its rank. A process that does not log serves nothing.
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
    feeds,
    no_metric,
    of_framework,
    settings_at,
    statistics,
)
from rlexporter.model.metric import Framework
from rlexporter.model.step import RunFacts

_REWARD = (
    *feeds("rl_reward_mean", "rollout/raw_reward"),
    *as_logged("rollout/rewards", "rollout/advantages"),
    *feeds("rl_return_mean", "rollout/returns", families=(PPO,)),
    *feeds("rl_value_mean", "rollout/values"),
    *as_logged("rollout/zero_std/count_{reward}", "passrate/pass@{k}"),
)

_POLICY = (
    *feeds("rl_loss", "train/loss"),
    *feeds("rl_policy_loss", "train/pg_loss"),
    *feeds("rl_update_entropy_per_token", "train/entropy_loss"),
    *feeds("rl_entropy_per_token", "rollout/entropy"),
    *feeds("rl_kl_loss_per_token", "train/kl_loss"),
    *feeds("rl_policy_policykl", "train/ppo_kl"),
    *feeds("rl_clip_ratio_region_mean", "train/pg_clipfrac", families=(GRPO,)),
    *feeds("rl_policy_clipfrac", "train/pg_clipfrac", families=(PPO,)),
    *feeds("rl_policy_ratio_mean", "train/ois"),
    *as_logged("train/opsm_clipfrac", "train/opd_reverse_kl", "rollout/opd_reverse_kl"),
    *feeds("rl_grad_norm", "train/grad_norm"),
    *feeds("rl_learning_rate", "train/lr-pg_0"),
    *no_metric(*(f"train/lr-pg_{group}" for group in range(1, 8))),
    *as_logged("train/global_batch_size"),
)

_CRITIC = (
    *feeds("rl_value_loss", "train/critic-value_loss", scale=0.5),  # the squared error, not its half
    *feeds("rl_value_clipfrac", "train/critic-value_clipfrac"),
    *feeds("rl_value_grad_norm", "train/critic-grad_norm"),
    *as_logged("train/critic-lr-pg_0"),
    *no_metric(*(f"train/critic-lr-pg_{group}" for group in range(1, 8)), "train/critic-global_batch_size"),
)

_LENGTHS = (
    *statistics("rl_completion_length_", "rollout/response_len/", "mean", "min", "max"),
    *as_logged("rollout/response_len/median", "rollout/response_lengths", "rollout/total_lengths"),
    *feeds("rl_completion_truncated_fraction", "rollout/truncated_ratio", "rollout/truncated"),
    *as_logged("rollout/repetition_frac"),
    *as_logged("multi_turn/multi_turn_metric/round_number_mean"),
)

_SAMPLER = (
    *feeds("rl_sampling_logp_difference_mean", "train/train_rollout_logprob_abs_diff"),
    *as_logged("rollout/log_probs", "rollout/rollout_log_probs", "rollout/ref_log_probs", "train/tis", "train/tis_abs"),
    *as_logged("train/tis_clipfrac"),
)

_SPEED = (
    *feeds("rl_step_time_seconds", "perf/step_time"),
    *feeds("rl_waiting_fraction", "perf/wait_time_ratio"),
    *as_logged(
        "perf/tokens_per_gpu_per_sec",
        "perf/{phase}_tflops",
        "perf/longest_sample_non_generation_time",
        "perf/longest_effective_sample_non_generation_time",
    ),
    *feeds("rl_phase_time_seconds", "perf/{phase}_time"),
    *no_metric("train/step", "rollout/step", "eval/step"),
)

_EVALUATION = (
    *as_logged("eval/{dataset}-truncated_ratio"),
    *feeds("rl_eval_pass_at_k", "eval/{dataset}-pass@{k}"),
    *feeds("rl_eval_reward", "eval/{name}"),  # not {dataset}: nothing with a further slash
)

_BOTH = (*_REWARD, *_POLICY, *_CRITIC, *_LENGTHS, *_SAMPLER, *_SPEED)

SLIME = Framework(
    name="slime",
    title="slime",
    marks=frozenset(("rollout/raw_reward", "train/train_rollout_logprob_abs_diff", "train/lr-pg_0")),
    critic=frozenset(("train/critic-value_loss", "rollout/values")),
    source="github THUDM/slime 624b824 (after 0.3.1): slime/observability, slime/backends/megatron_utils",
    keys=(*_BOTH, *_EVALUATION),
)

MILES = replace(
    SLIME,
    name="miles",
    title="miles",
    marks=frozenset(("train/ess_ratio", "train/train_rollout_kl", "rollout/zero_std/all_zero_percentage")),
    source="github radixark/miles 31f1ca9: miles/backends/training_utils, miles/ray/rollout, miles/utils",
    keys=(
        *_BOTH,
        *feeds("rl_rollout_kl_per_token", "train/train_rollout_kl"),
        *feeds("rl_update_effective_sample_fraction", "train/ess_ratio"),
        *as_logged(
            "rollout/zero_std/all_zero_percentage",
            "rollout/zero_std/all_one_percentage",
            "multi_turn/multi_turn_metric/round_number_min",
            "multi_turn/multi_turn_metric/round_number_max",
            "perf/{role}_mfu",
            "eval/skipped_{reason}",
            "eval/{dataset}-none_reward_ratio",
        ),
        *_EVALUATION,
    ),
)
"""More keys than slime, among them the smallest and largest number of turns over all ranks."""
TABLES = (MILES, SLIME)

_SETTINGS = {
    "num_generations": "n_samples_per_prompt",
    "temperature": "rollout_temperature",
    "top_p": "rollout_top_p",
    "top_k": "rollout_top_k",
    "learning_rate": "lr",
    "weight_decay": "weight_decay",
    "max_grad_norm": "clip_grad",
    "epsilon": "eps_clip",
    "epsilon_high": "eps_clip_high",
    "entropy_coef": "entropy_coef",
    "max_completion_length": "rollout_max_response_len",
    "gamma": "gamma",
    "lam": "lambd",
}
"""Settings of TRL that slime has too, with the same meaning, and their names there."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what slime or miles logs. ``module``: the one with its `log`; slime had it in `slime.utils` before."""

    def log(args: Any, metrics: Line, step_key: str) -> None:
        step = _step(args, metrics, step_key)
        line = {key: value for key, value in metrics.items() if key != step_key}
        feed.log(lambda: _facts(feed.name, args, line, step), line, step, whole=True, chosen=True)

    def finish(*_: Any, **__: Any) -> None:
        feed.end()

    after_call(module, "log", log)
    after_call(module, "finish_tracking", finish)


def _part(metrics: Line) -> str:
    """Return the role of this process, whose first line holds ``metrics``. Only one that trains has a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return "rollout"
    return "critic" if any(key.startswith("train/critic-") for key in metrics) else "trainer"


def _step(args: Any, metrics: Line, step_key: str) -> int:
    """Return the optimizer step of a line, counted from 1; slime and miles count from 0.

    A line of a rollout belongs to the first step that uses it.
    """
    step = int(metrics[step_key])
    counts_updates = step_key == "train/step" or getattr(args, "wandb_always_use_train_step", False)
    return 1 + (step if counts_updates else step * _updates(args))


def _updates(args: Any) -> int:
    """Return the number of optimizer steps that use a rollout."""
    told = getattr(args, "num_steps_per_rollout", None)
    if isinstance(told, int) and told > 0:
        return told
    sizes = [getattr(args, name, None) for name in ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size")]
    prompts, group, batch = (size if isinstance(size, int) else 0 for size in sizes)
    return max(1, prompts * group // batch) if batch else 1


def _facts(framework: str, args: Any, line: Line, step: int) -> RunFacts:
    settings = settings_at(args, _SETTINGS)
    settings["beta"] = at(args, "kl_loss_coef") if at(args, "use_kl_loss") else 0.0
    settings["kl_coef"] = at(args, "kl_coef") or None
    prompts, group, rollouts = at(args, "rollout_batch_size"), settings["num_generations"], at(args, "num_rollout")
    if isinstance(prompts, int) and isinstance(group, int):
        settings["generation_batch_size"] = prompts * group // _updates(args)
    if isinstance(rollouts, int):
        settings["max_steps"] = rollouts * _updates(args)
    facts = of_framework(
        framework,
        settings,
        str(at(args, "advantage_estimator") or "").replace("_", "-"),
        name=at(args, "wandb_group"),
        model=at(args, "hf_checkpoint"),
        step=step - 1,
    )
    return replace(facts, rank=0, part=_part(line))
