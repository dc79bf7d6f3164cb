"""accelerate: `Accelerator.log`, `init_trackers` and `end_training`, whatever trackers it has. All public."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import of_config

NAME = "accelerate"


def watch_accelerator(module: ModuleType, sources: Sources) -> None:
    """Read what every `Accelerator` logs on its main process. ``module``: `accelerate.accelerator`."""
    given: dict[str, Any] = {}

    def init(accelerator: Any, project_name: str, config: Any = None, *_: Any, **__: Any) -> None:
        given.clear()
        given.update(config or {})

    def log(accelerator: Any, values: Mapping[str, Any], step: int | None = None, *_: Any, **__: Any) -> None:
        if accelerator.is_main_process:
            at = None if step is None else int(step)
            sources.log(NAME, lambda: of_config(given), values, at, whole=step is None)

    def end(accelerator: Any) -> None:
        sources.end(NAME)

    watch(module.Accelerator, "init_trackers", init)
    watch(module.Accelerator, "log", log)
    watch(module.Accelerator, "end_training", end)
