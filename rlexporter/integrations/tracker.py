"""Tracker for accelerate: `PPOConfig(log_with=[RLExporterTracker(exporter)])`, or `Accelerator(log_with=...)`.

It sees log lines but no tensors; `rlexporter.attach` sees more, if there is a trainer to attach to. The only file that
imports accelerate.
"""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker  # type: ignore[import-untyped]

from rlexporter.catalog import algorithms
from rlexporter.exporter import Exporter
from rlexporter.frameworks.common import of_config
from rlexporter.integrations.logged_run import LoggedRun

_LEGACY_PPO = "trl_ppo_trainer_config"
"""Key under which legacy PPO passes its settings."""


class RLExporterTracker(GeneralTracker):  # type: ignore[misc] # accelerate is not typed
    """Serves each log line as a step. ``exporter`` starts with the training, on rank 0, on the next port if taken."""

    name = "rlexporter"
    requires_logging_directory = False

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._run = LoggedRun(exporter)

    @property
    def tracker(self) -> Exporter:
        """Return the exporter."""
        return self._run.exporter

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Begin the run with its settings, ``values``."""
        with self.tracker._run.errors.guard("event"):
            algorithm = algorithms.PPO_LEGACY if _LEGACY_PPO in values else ""
            self._run.begin(of_config(values.get(_LEGACY_PPO, values), algorithm=algorithm))

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Serve the line ``values``; without ``step``, each line that is no evaluation is a step."""
        self._run.log(values, step)

    def finish(self) -> None:
        """End the run, at `Accelerator.end_training()`. Without that call it ends with the process."""
        self._run.end()
