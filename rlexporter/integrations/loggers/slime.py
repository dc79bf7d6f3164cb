"""slime and miles: `log(args, metrics, step_key)`, their one way out. Written for slime 624b824 and miles 31f1ca9.

A process that samples and one that trains both log, each its own part of a step; a critic is a third. Each of them
serves its part, as a run of its own, since alerts take the newest process of a name for the only one. Of all that train
one logs: the first of the last pipeline stage, whichever rank that is. What does not log serves nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from rlexporter.catalog import FRAMEWORKS, family
from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import at, of_framework, settings_at
from rlexporter.model.step import RunFacts

_SETTINGS = {
    "num_generations": ("n_samples_per_prompt",),
    "temperature": ("rollout_temperature",),
    "top_p": ("rollout_top_p",),
    "top_k": ("rollout_top_k",),
    "learning_rate": ("lr",),
    "weight_decay": ("weight_decay",),
    "max_grad_norm": ("clip_grad",),
    "epsilon": ("eps_clip",),
    "epsilon_high": ("eps_clip_high",),
    "entropy_coef": ("entropy_coef",),
    "max_completion_length": ("rollout_max_response_len",),
    "gamma": ("gamma",),
    "lam": ("lambd",),
}
"""Settings of TRL that slime has too, with the same meaning, and their names there."""


def watch_slime(module: ModuleType, sources: Sources) -> None:
    """Read what slime logs. ``module``: `slime.observability.logging_utils`, before `slime.utils.logging_utils`."""
    _watch("slime", module, sources)


def watch_miles(module: ModuleType, sources: Sources) -> None:
    """Read what miles logs. ``module``: `miles.utils.tracking_utils.tracking`."""
    _watch("miles", module, sources)


def _watch(name: str, module: Any, sources: Sources) -> None:
    def log(args: Any, metrics: Mapping[str, Any], step_key: str) -> None:
        step = _step(args, metrics, step_key)
        line = {key: value for key, value in metrics.items() if key != step_key}

        def facts() -> RunFacts:
            return replace(_facts(name, args, step), part=_part(line))

        sources.log(name, facts, line, step, whole=True, chosen=True)

    def finish(*_: Any, **__: Any) -> None:
        sources.end(name)

    watch(module, "log", log)
    watch(module, "finish_tracking", finish)


def _part(metrics: Mapping[str, Any]) -> str:
    """Return what the process does whose first line holds ``metrics``: those that train are in a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return "rollout"
    return "critic" if any(key.startswith("train/critic-") for key in metrics) else "trainer"


def _step(args: Any, metrics: Mapping[str, Any], step_key: str) -> int:
    """Return the optimizer step that a line belongs to, the first being 1, which both count from 0.

    A line of a rollout belongs to the first step that it is used for.
    """
    step = int(metrics[step_key])
    counts_updates = step_key == "train/step" or getattr(args, "wandb_always_use_train_step", False)
    return 1 + (step if counts_updates else step * _updates(args))


def _updates(args: Any) -> int:
    """Return the number of optimizer steps that a rollout is used for."""
    told = getattr(args, "num_steps_per_rollout", None)
    if isinstance(told, int) and told > 0:
        return told
    sizes = [getattr(args, name, None) for name in ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size")]
    prompts, each, batch = (size if isinstance(size, int) else 0 for size in sizes)
    return max(1, prompts * each // batch) if batch else 1


def _facts(name: str, args: Any, step: int) -> RunFacts:
    found = settings_at(args, _SETTINGS)
    found["beta"] = at(args, "kl_loss_coef") if at(args, "use_kl_loss") else 0.0
    found["kl_coef"] = at(args, "kl_coef") or None
    prompts, each, rollouts = at(args, "rollout_batch_size"), found["num_generations"], at(args, "num_rollout")
    if isinstance(prompts, int) and isinstance(each, int):
        found["generation_batch_size"] = prompts * each // _updates(args)
    if isinstance(rollouts, int):
        found["max_steps"] = rollouts * _updates(args)
    algorithm = str(at(args, "advantage_estimator") or "").replace("_", "-")
    facts = of_framework(
        found,
        framework=FRAMEWORKS[name].name,
        algorithm=algorithm,
        judged_as=family(algorithm),
        name=at(args, "wandb_group"),
        model=at(args, "hf_checkpoint"),
        step=step - 1,
        importance_sampling_level="sequence" if algorithm == "gspo" else "",
    )
    return replace(facts, rank=0)
