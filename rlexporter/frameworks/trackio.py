"""Trackio: `Run.log`, to which `trackio.log` goes, and `Run.finish`. Both are public, as is `trackio.Histogram`."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, Line, after_call, keep_values, of_config, raw, step_in


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what every `trackio.Run` logs, and what its histograms were made of. ``module``: the one of either."""
    if not hasattr(module, "Run"):
        keep_values(module.Histogram)
        return
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def log(run: Any, metrics: Line, step: int | None = None, *_: Any) -> None:
        at = steps.get(run, 0) if step is None else int(step)
        steps[run] = max(steps.get(run, 0), at + 1)
        named = step_in(metrics)
        place = at if named is None else named
        feed.log(lambda: of_config(run.config, run_name=run.name), raw(metrics), place, whole=step is None)

    def finish(run: Any, *_: Any, **__: Any) -> None:
        feed.end()

    after_call(module.Run, "log", log)
    after_call(module.Run, "finish", finish)
