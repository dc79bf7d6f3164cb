"""prime-rl: the monitors of its trainer and of its orchestrator, two processes that each serve their own part.

Written for `src/prime_rl/utils/monitor` of prime-rl v0.3.0 to v0.8.0 (`setup_monitor(..., run_config=)` and monitors
with `log(metrics, step)`), and for `src/prime_rl/monitors` after it, a package whose coroutine `log(data, step)` all
lines go through, metrics as mappings and episodes as lists. Both log the parts of a step in several calls, and no
monitor has to be configured. The end is that of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from rlexporter.catalog import family
from rlexporter.catalog.algorithms import GRPO
from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import at, first_at, of_framework, settings_at
from rlexporter.model.step import RunFacts

NAME = "prime_rl"
_MONITORS = ("NoOpMonitor", "WandbMonitor", "PrimeMonitor", "FileMonitor", "MultiMonitor")
_SETTINGS = {
    "num_generations": ("group_size", "rollouts_per_example"),
    "generation_batch_size": ("batch_size",),
    "temperature": ("train.sampling.temperature", "sampling.temperature"),
    "max_completion_length": ("train.sampling.max_completion_tokens", "sampling.max_tokens"),
    "max_steps": ("max_steps",),
    "learning_rate": ("optim.lr",),
    "weight_decay": ("optim.weight_decay",),
    "max_grad_norm": ("optim.max_norm",),
}
"""Settings of TRL that prime-rl has too, with the same meaning, and where the configuration of a process has them."""


def watch_fan_out(module: ModuleType, sources: Sources) -> None:
    """Read what goes to all monitors. ``module``: `prime_rl.monitors`."""
    config: list[Any] = []

    def setup(*_: Any, run_config: Any = None, **__: Any) -> None:
        config[:] = [run_config]

    def log(data: Any, step: int, *_: Any, **__: Any) -> None:
        _log(sources, config, data, step)

    watch(module, "setup", setup)
    watch(module, "log", log)


def watch_monitors(module: ModuleType, sources: Sources) -> None:
    """Read what the monitor of this process logs, whichever it is. ``module``: `prime_rl.utils.monitor`."""
    config: list[Any] = []

    def setup(
        wandb_config: Any = None, output_dir: Any = None, tokenizer: Any = None, run_config: Any = None, **_: Any
    ) -> None:
        config[:] = [run_config]

    def log(monitor: Any, metrics: Any, step: int | None = None, *_: Any, **__: Any) -> None:
        _log(sources, config, metrics, step)

    watch(module, "setup_monitor", setup)
    for name in _MONITORS:
        if hasattr(module, name):
            watch(getattr(module, name), "log", log)


def _log(sources: Sources, config: list[Any], metrics: Any, step: int | None) -> None:
    if not isinstance(metrics, Mapping):
        return
    at_step = None if step is None else int(step)
    own = config[0] if config else None
    sources.log(NAME, lambda: _facts(own, at_step), metrics, at_step, whole=False)


def _facts(config: Any, step: int | None) -> RunFacts:
    """Return the facts of the part of a run whose first line is that of ``step``."""
    found = settings_at(config, _SETTINGS)
    part = type(config).__name__.removesuffix("Config").removeprefix("RL").lower()
    part = part if part in ("trainer", "orchestrator") else ""
    name = str(first_at(config, "monitors.wandb.name", "wandb.name") or "")
    algorithm = str(at(config, "algo.type") or GRPO)
    model = first_at(config, "model.name", "model")
    facts = of_framework(
        found,
        framework="prime-rl",
        algorithm=algorithm,
        judged_as=family(algorithm),
        name=name.removesuffix(f"-{part}"),
        model=model if isinstance(model, str) else "",
        step=None if step is None else step - 1,
        trainer=f"prime-rl {part}".strip(),
        loss_type=str(at(config, "loss.type") or ""),
    )
    return replace(facts, part=part)
