"""accelerate: `Accelerator.log`, `init_trackers` and `end_training`, whatever trackers it has. All public."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, Line, after_call, of_config


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what every `Accelerator` logs on its main process. ``module``: `accelerate.accelerator`."""
    given: dict[str, Any] = {}

    def init(accelerator: Any, project_name: str, config: Any = None, *_: Any, **__: Any) -> None:
        given.clear()
        given.update(config or {})

    def log(accelerator: Any, values: Line, step: int | None = None, *_: Any, **__: Any) -> None:
        if accelerator.is_main_process:
            feed.log(lambda: of_config(given), values, None if step is None else int(step), whole=step is None)

    def end(accelerator: Any) -> None:
        feed.end()

    after_call(module.Accelerator, "init_trackers", init)
    after_call(module.Accelerator, "log", log)
    after_call(module.Accelerator, "end_training", end)
