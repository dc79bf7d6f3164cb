"""W&B: `Run.log`, to which `wandb.log` goes, and `Run.finish`. Both are public, as is `wandb.Histogram`.

Offline and online runs are the same here. W&B keeps a line open until its step changes or it is committed, and counts
steps itself where none is given; so does this file, since asking W&B for its step would wait for another process.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.integrations.log_sources import Sources, watch
from rlexporter.integrations.loggers.common import keep_values, of_config, raw, step_in
from rlexporter.model.step import RunFacts

NAME = "wandb"


def watch_runs(module: ModuleType, sources: Sources) -> None:
    """Read what every `wandb.Run` logs. ``module``: `wandb.sdk.wandb_run`."""
    _Lines(sources).watch(module.Run)


def watch_histograms(module: ModuleType, sources: Sources) -> None:
    """Remember what a `wandb.Histogram` was made of. ``module``: `wandb.sdk.data_types.histogram`."""
    keep_values(module.Histogram)


class _Lines:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """W&B's own step of the next line of each run."""
        self._named: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The newest step of each run that a line named by a key, such as ``train/global_step``."""

    def watch(self, run: type) -> None:
        watch(run, "log", self._log)
        watch(run, "finish", self._finish)

    def _log(
        self, run: Any, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, *_: Any
    ) -> None:
        whole = commit is True or (commit is None and step is None)
        at = self._steps.get(run, getattr(run, "starting_step", 0) or 0)
        at = at if step is None else max(at, int(step))
        self._steps[run] = at + whole
        named = step_in(data)
        if named is not None:
            self._named[run] = named
        line = raw(_flat(data))
        at = self._named.get(run, at)
        self._sources.log(NAME, lambda: _facts(run), line, at, whole=whole, replaces=True)

    def _finish(self, run: Any, exit_code: int | None = None, *_: Any, **__: Any) -> None:
        self._sources.end(NAME, RuntimeError(f"exit code {exit_code}") if exit_code else None)


def _facts(run: Any) -> RunFacts:
    return of_config(dict(run.config), run_name=run.name)


def _flat(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return ``data`` as W&B stores it: mappings inside become keys with dots."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if type(value) is not float and isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
