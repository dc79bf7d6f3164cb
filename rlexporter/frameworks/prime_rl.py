"""prime-rl. Read in v0.8.0 and in 559b447 (after v0.8.1.dev67) of github.com/PrimeIntellect-ai/prime-rl, older
names in v0.5.0, below ``src/prime_rl/``:

trainer/rl/train.py            what the trainer logs: loss, entropy, mismatch, gradient, speed, memory
trainer/rl/loss.py             compute_importance_ratio_and_mismatch_kl, the masks of the trust region
trainer/model.py               get_load_balance_stats: means over layers, micro-batches and ranks
trainer/utils.py               statistics over all tokens of all ranks, and which of them are logged
orchestrator/metrics.py        rewards, lengths, turns by agent; ``all`` is what has arrived, ``effective`` what is kept
orchestrator/orchestrator.py   staleness, tokens, rollouts, time
orchestrator/train_sink.py     what is cancelled: episodes whose group, or whose place in the queue, became too old
orchestrator/scheduler.py      errors, in v0.5 alone
utils/monitor                  `setup_monitor(..., run_config=)` and monitors with `log(metrics, step)`, from v0.3.0
monitors                       instead of it since: one coroutine `log(data, step)`, for lists of episodes too

Trainer and orchestrator are two processes, each of which logs its own part of a step, in several calls; no monitor has
to be configured. An environment with one agent calls it ``agent``: its reward and truncation are those of the run, and
that of one of several environments is served by its name. v0.7 names no agents. The run ends with the process. The
busiest experts that padding goes to are left out of ``max_vio``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from rlexporter.catalog.algorithms import GRPO
from rlexporter.frameworks.common import (
    Feed,
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

_GIB = float(2**30)
_ALL, _KEPT = "train/agg/all", "train/agg/effective"

_TRAINER = (
    *feeds("rl_micro_batch_loss_mean", "loss/mean"),
    *feeds("rl_entropy_per_token", "entropy/all/mean", "entropy/mean"),
    *feeds("rl_rollout_kl_per_token", "mismatch_kl/all/mean"),
    *as_logged("is_masked/mean"),
    *as_logged("is_masked_{side}/mean"),
    *as_logged("max_vio/mean"),
    *as_logged("routing_confidence/mean"),
    *feeds("rl_learning_rate", "optim/lr"),
    *feeds("rl_grad_norm", "optim/grad_norm"),
    *as_logged("perf/throughput_per_gpu", "perf/peak_memory"),
    *feeds("rl_step_time_seconds", "time/step"),
    *feeds("rl_phase_time_seconds", "time/{phase}"),
)

_ORCHESTRATOR = (
    *feeds("rl_reward_mean", f"{_ALL}/agent/reward/mean"),
    *as_logged(f"{_ALL}/agent/reward/min", f"{_ALL}/agent/reward/max", f"{_KEPT}/agent/reward/mean"),
    *feeds("rl_completion_truncated_fraction", f"{_ALL}/agent/is_truncated/mean"),
    *feeds("rl_rollout_error_fraction", f"{_ALL}/has_error/mean", f"{_ALL}/agent/has_error/mean"),
    *as_logged(f"{_ALL}/cancelled/mean"),
    *feeds("rl_agent_reward", f"{_ALL}/{{agent}}/reward/{{statistic}}", "train/{agent}/all/agent/reward/{statistic}"),
    *as_logged(f"{_ALL}/{{agent}}/solved_{{outcome}}"),
    *statistics("rl_completion_length_", f"{_ALL}/num_output_tokens/"),
    *as_logged(
        f"{_ALL}/num_total_tokens/mean",
        f"{_ALL}/num_total_tokens/min",
        f"{_ALL}/num_total_tokens/max",
        f"{_ALL}/num_turns/mean",
        f"{_ALL}/num_turns/min",
        f"{_ALL}/num_turns/max",
    ),
    *as_logged(*(f"{_ALL}{of}/timing/{{part}}/{{statistic}}" for of in ("/agent", ""))),
    *feeds("rl_sample_staleness_mean", "off_policy/mean"),
    *as_logged("off_policy/max"),
    *as_logged("off_policy/{reason}"),
    *as_logged("progress/tokens"),
    *as_logged("progress/rollouts", "progress/samples"),
    *feeds("rl_eval_score", "eval/{dataset}/effective/{score}/{statistic}"),
)

_OLDER = (
    *feeds("rl_reward_mean", "reward/all/mean"),
    *feeds("rl_completion_length_mean", "decode_len/all/mean"),
    *as_logged("seq_len/all/mean"),
    *feeds("rl_completion_truncated_fraction", "is_truncated/all/mean"),
    *as_logged("num_turns/all/mean"),
    *feeds("rl_rollout_error_fraction", "errored_rollouts/all"),
    *feeds("rl_completion_empty_fraction", "empty_rollouts/all"),
    *feeds("rl_reward_mean", f"{_ALL}/reward/mean"),
    *as_logged(f"{_ALL}/reward/min", f"{_ALL}/reward/max", f"{_KEPT}/reward/mean"),
    *feeds("rl_completion_truncated_fraction", f"{_ALL}/is_truncated/mean"),
)
"""Keys of v0.5 and before, and those of v0.7 without an agent. The extremes of v0.5 are those of the means of problems,
and are left out.
"""

PRIME_RL = Framework(
    name="prime-rl",
    title="prime-rl",
    marks=frozenset(
        ("mismatch_kl/all/mean", f"{_ALL}/num_output_tokens/mean", "progress/rollouts", "decode_len/all/mean")
    ),
    source="prime-rl v0.5.0 to 559b447 (github.com/PrimeIntellect-ai/prime-rl): src/prime_rl/trainer, orchestrator",
    keys=(*_TRAINER, *_ORCHESTRATOR, *_OLDER, *no_metric("step")),
)
TABLES = (PRIME_RL,)

_MONITORS = ("NoOpMonitor", "WandbMonitor", "PrimeMonitor", "FileMonitor", "MultiMonitor")
_SETTINGS = {
    "num_generations": "group_size rollouts_per_example",
    "generation_batch_size": "batch_size",
    "temperature": "train.sampling.temperature sampling.temperature",
    "max_completion_length": "train.sampling.max_completion_tokens sampling.max_tokens",
    "max_steps": "max_steps",
    "max_staleness": "max_off_policy_steps",
    "learning_rate": "optim.lr",
    "weight_decay": "optim.weight_decay",
    "max_grad_norm": "optim.max_norm",
}
"""Settings of TRL that prime-rl has too, with the same meaning, and where the configuration of a process has them."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what goes to all monitors. ``module``: `prime_rl.monitors`; before it, `prime_rl.utils.monitor`."""
    config: list[Any] = []

    def setup(*_: Any, run_config: Any = None, **__: Any) -> None:
        config[:] = [run_config]

    def setup_monitor(
        wandb_config: Any = None, output_dir: Any = None, tokenizer: Any = None, run_config: Any = None, **_: Any
    ) -> None:
        config[:] = [run_config]

    def log(data: Any, step: int | None, *_: Any, **__: Any) -> None:
        if isinstance(data, Mapping):
            at_step, own = None if step is None else int(step), config[0] if config else None
            feed.log(lambda: _facts(own, at_step), data, at_step, whole=False)

    def log_by(monitor: Any, metrics: Any, step: int | None = None, *_: Any, **__: Any) -> None:
        log(metrics, step)

    if not hasattr(module, "setup_monitor"):
        after_call(module, "setup", setup)
        after_call(module, "log", log)
        return
    after_call(module, "setup_monitor", setup_monitor)
    for name in _MONITORS:
        if hasattr(module, name):
            after_call(getattr(module, name), "log", log_by)


def _facts(config: Any, step: int | None) -> RunFacts:
    """Return the facts of the part of a run whose first line is that of ``step``."""
    settings = settings_at(config, _SETTINGS)
    part = type(config).__name__.removesuffix("Config").removeprefix("RL").lower()
    part = part if part in ("trainer", "orchestrator") else ""
    name = str(at(config, "monitors.wandb.name", "wandb.name") or "")
    model = at(config, "model.name", "model")
    facts = of_framework(
        PRIME_RL.name,
        settings,
        str(at(config, "algo.type") or GRPO),
        name=name.removesuffix(f"-{part}"),
        model=model if isinstance(model, str) else "",
        step=None if step is None else step - 1,
        trainer=f"{PRIME_RL.name} {part}".strip(),
        loss_type=str(at(config, "loss.type") or ""),
    )
    return replace(facts, part=part)
