"""W&B: `Run.log`, to which `wandb.log` goes, and `Run.finish`. Both are public, as is `wandb.Histogram`.

Offline and online runs are the same here. W&B keeps a line open until its step changes or it is committed, and counts
steps itself where none is given; so does this file, since asking W&B for its step would wait for another process.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, Line, after_call, keep_values, of_config, raw, step_in


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what every `wandb.Run` logs, and what its histograms were made of. ``module``: the one of either."""
    if not hasattr(module, "Run"):
        keep_values(module.Histogram)
        return
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    """W&B's own step of the next line of each run."""
    named: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    """The newest step of each run that a line named by a key, such as ``train/global_step``."""

    def log(run: Any, data: Line, step: int | None = None, commit: bool | None = None, *_: Any) -> None:
        whole = commit is True or (commit is None and step is None)
        at = steps.get(run, getattr(run, "starting_step", 0) or 0)
        at = at if step is None else max(at, int(step))
        steps[run] = at + whole
        if (told := step_in(data)) is not None:
            named[run] = told
        line, at = raw(_flat(data)), named.get(run, at)
        feed.log(lambda: of_config(dict(run.config), run_name=run.name), line, at, whole=whole, replaces=True)

    def finish(run: Any, exit_code: int | None = None, *_: Any, **__: Any) -> None:
        feed.end(RuntimeError(f"exit code {exit_code}") if exit_code else None)

    after_call(module.Run, "log", log)
    after_call(module.Run, "finish", finish)


def _flat(data: Line, above: str = "") -> dict[str, Any]:
    """Return ``data`` as W&B stores it: mappings inside become keys with dots."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if type(value) is not float and isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
