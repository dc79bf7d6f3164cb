"""Loggers: accelerate, W&B, Trackio, TensorBoard and MLflow. All calls that are watched here are public.

W&B: `Run.log`, to which `wandb.log` goes, and `Run.finish`. Offline and online runs are the same here. W&B keeps a line
open until its step changes or it is committed, and counts steps itself where none is given; so does this file, since
asking W&B for its step would wait for another process. Trackio is alike.

TensorBoard: the writers of one process, of torch and of tensorboardX, write one run: tags of all of them are one set of
keys. If two writers, each with a folder of its own, use the same tag, the first one keeps it, and that of the other
gets the name of its folder before it.

MLflow: `MlflowClient.log_metric` and `log_batch`, to which `mlflow.log_metric` and `log_metrics` go. MLflow gives what
is logged without a step the step 0. Keys that come again at 0, before any other step, are therefore counted as steps.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, Line, after_call, of_config, step_in
from rlexporter.model.step import RunFacts

_MOST_KEYS = 10_000
_KEPT = "_rlexporter_values"
_SYSTEM = "system/"
"""The keys of MLflow's own watch over the machine, from a thread of its own and with steps of its own."""


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what the logger of ``feed`` logs. ``module``: one of those that `LOGGERS` of the package names for it."""
    if hasattr(module, "Histogram") and not hasattr(module, "Run"):
        _keep_values(module.Histogram)
    else:
        _WATCHES[feed.name](module, feed)


def _watch_accelerate(module: ModuleType, feed: Feed) -> None:
    """Read what every `Accelerator` logs on its main process, whatever trackers it has."""
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


def _watch_wandb(module: ModuleType, feed: Feed) -> None:
    """Read what every `wandb.Run` logs."""
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
        line, at = _raw(_flat(data)), named.get(run, at)
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


def _watch_trackio(module: ModuleType, feed: Feed) -> None:
    """Read what every `trackio.Run` logs."""
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def log(run: Any, metrics: Line, step: int | None = None, *_: Any) -> None:
        at = steps.get(run, 0) if step is None else int(step)
        steps[run] = max(steps.get(run, 0), at + 1)
        named = step_in(metrics)
        place = at if named is None else named
        feed.log(lambda: of_config(run.config, run_name=run.name), _raw(metrics), place, whole=step is None)

    def finish(run: Any, *_: Any, **__: Any) -> None:
        feed.end()

    after_call(module.Run, "log", log)
    after_call(module.Run, "finish", finish)


def _keep_values(histogram: Any) -> None:
    """Let each ``histogram(sequence)`` of W&B or Trackio remember its sequence until it is logged.

    The loggers themselves keep counts only, in bins of their own choice. `np_histogram=` gives no sequence to remember.
    """

    def keep(self: Any, sequence: Any = None, *_: Any, **__: Any) -> None:
        if sequence is not None:
            vars(self)[_KEPT] = sequence

    after_call(histogram, "__init__", keep)


def _raw(line: Line) -> dict[str, Any]:
    """Return ``line`` with the sequences that its histograms remember in their place. Each is counted once."""
    return {
        key: value if type(value) is float or not hasattr(value, _KEPT) else value.__dict__.pop(_KEPT)
        for key, value in line.items()
    }


def _watch_tensorboard(module: ModuleType, feed: Feed) -> None:
    """Read what every `SummaryWriter` logs."""
    folders: dict[str, str] = {}
    """The folder of the writer that used a tag first, by tag."""

    def scalar(writer: Any, tag: str, value: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
        log(writer, {tag: value}, global_step)

    def scalars(writer: Any, main_tag: str, tag_scalar_dict: Line, global_step: Any = None, *_: Any, **__: Any) -> None:
        log(writer, {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step)

    def close(writer: Any) -> None:
        feed.flush()

    def log(writer: Any, values: Line, step: Any) -> None:
        folder = str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", ""))  # torch's, tensorboardX's
        line = {key(tag, folder): value for tag, value in values.items()}
        feed.log(lambda: RunFacts(open_ended=True), line, None if step is None else int(step), whole=False)

    def key(tag: str, folder: str) -> str:
        if len(folders) < _MOST_KEYS:
            folders.setdefault(tag, folder)
        return tag if folders.get(tag, folder) == folder else f"{folder.rstrip('/').rpartition('/')[2]}/{tag}"

    after_call(module.SummaryWriter, "add_scalar", scalar)
    after_call(module.SummaryWriter, "add_scalars", scalars)
    after_call(module.SummaryWriter, "add_histogram", scalar)
    after_call(module.SummaryWriter, "close", close)


def _watch_mlflow(module: ModuleType, feed: Feed) -> None:
    """Read what every client logs."""
    lines = _MLflowRun(feed)
    after_call(module.MlflowClient, "log_metric", lines.log_metric)
    after_call(module.MlflowClient, "log_batch", lines.log_batch)
    after_call(module.MlflowClient, "log_param", lines.log_param)
    after_call(module.MlflowClient, "set_terminated", lines.end)


class _MLflowRun:
    """The lines of one MLflow run: that of the first line, until it is terminated."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._begin("")

    def log_metric(
        self, own: Any, run_id: str, key: str, value: Any, timestamp: Any = None, step: Any = None, *_: Any, **__: Any
    ) -> None:
        self._log(run_id, {key: value}, step)

    def log_batch(
        self, client: Any, run_id: str, metrics: Sequence[Any] = (), params: Sequence[Any] = (), *_: Any, **__: Any
    ) -> None:
        for param in params:
            self.log_param(client, run_id, param.key, param.value)
        by_step: dict[Any, dict[str, Any]] = defaultdict(dict)
        for metric in metrics:
            by_step[metric.step][metric.key] = metric.value
        for step, values in by_step.items():
            self._log(run_id, values, step)

    def log_param(self, client: Any, run_id: str, key: str, value: Any, *_: Any, **__: Any) -> None:
        if len(self._params) < _MOST_KEYS:
            with suppress(TypeError, ValueError):
                self._params[key] = float(value)

    def end(self, client: Any, run_id: str, status: str | None = None, *_: Any, **__: Any) -> None:
        if run_id == self._run:
            failed = status in ("FAILED", "KILLED")
            self._feed.end(RuntimeError(f"MLflow says {status}") if failed else None)
            self._begin("")

    def _begin(self, run_id: str) -> None:
        self._run = run_id
        self._params: dict[str, float] = {}
        self._at_zero: set[str] = set()
        """The keys that came at step 0 while no line had another step."""
        self._counts = True
        """True while no line had a step above 0."""
        self._again = False
        """True once a key came again at step 0."""

    def _log(self, run_id: str, values: dict[str, Any], step: Any) -> None:
        line = {key: value for key, value in values.items() if not key.startswith(_SYSTEM)}
        self._run = self._run or run_id
        if line and run_id == self._run:
            self._feed.log(self._facts, line, self._step(line, int(step or 0)), whole=False)

    def _step(self, line: dict[str, Any], step: int) -> int | None:
        """Return the step of a line; None if the script gives none."""
        self._counts = self._counts and step <= 0
        if not self._counts:
            return step
        self._again = self._again or not self._at_zero.isdisjoint(line)
        if len(self._at_zero) < _MOST_KEYS:
            self._at_zero.update(line)
        return None if self._again else step

    def _facts(self) -> RunFacts:
        active = sys.modules["mlflow"].active_run()
        named = active is not None and active.info.run_id == self._run
        return of_config(self._params, run_name=active.info.run_name if named else None)


_WATCHES = {
    "accelerate": _watch_accelerate,
    "wandb": _watch_wandb,
    "trackio": _watch_trackio,
    "tensorboard": _watch_tensorboard,
    "mlflow": _watch_mlflow,
}
