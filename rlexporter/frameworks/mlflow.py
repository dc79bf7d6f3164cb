"""MLflow: `MlflowClient.log_metric` and `log_batch`, to which `mlflow.log_metric` and `log_metrics` go. All public.

MLflow gives what is logged without a step the step 0. Keys that come again at 0, before any other step, are therefore
counted as steps.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from rlexporter.frameworks.common import Feed, after_call, of_config
from rlexporter.model.step import RunFacts

_SYSTEM = "system/"
"""The keys of MLflow's own watch over the machine, from a thread of its own and with steps of its own."""
_MOST_KEYS = 10_000


def watch(module: ModuleType, feed: Feed) -> None:
    """Read what every client logs. ``module``: `mlflow.tracking.client`."""
    lines = _Lines(feed)
    after_call(module.MlflowClient, "log_metric", lines.log_metric)
    after_call(module.MlflowClient, "log_batch", lines.log_batch)
    after_call(module.MlflowClient, "log_param", lines.log_param)
    after_call(module.MlflowClient, "set_terminated", lines.end)


class _Lines:
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
