"""Trackio: `Run.log`, to which `trackio.log` goes, and `Run.finish`. Both are public, as is `trackio.Histogram`."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import keep_values, of_config, raw, step_in

NAME = "trackio"


def watch_runs(module: ModuleType, sources: Sources) -> None:
    """Read what every `trackio.Run` logs. ``module``: `trackio.run`."""
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def log(run: Any, metrics: Mapping[str, Any], step: int | None = None, *_: Any) -> None:
        at = steps.get(run, 0) if step is None else int(step)
        steps[run] = max(steps.get(run, 0), at + 1)
        named = step_in(metrics)
        line, place = raw(metrics), at if named is None else named
        sources.log(NAME, lambda: of_config(run.config, run_name=run.name), line, place, whole=step is None)

    def finish(run: Any, *_: Any, **__: Any) -> None:
        sources.end(NAME)

    watch(module.Run, "log", log)
    watch(module.Run, "finish", finish)


def watch_histograms(module: ModuleType, sources: Sources) -> None:
    """Remember what a `trackio.Histogram` was made of. ``module``: `trackio.histogram`."""
    keep_values(module.Histogram)
