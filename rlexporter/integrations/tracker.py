"""Tracker for accelerate: `PPOConfig(log_with=[RLExporterTracker(exporter)])`, or `Accelerator(log_with=...)`.

It sees log lines but no tensors; `rlexporter.attach` sees more, if there is a trainer to attach to. The only file that
imports accelerate.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from accelerate.tracking import GeneralTracker  # type: ignore[import-untyped]

from rlexporter import catalog
from rlexporter.adapters.trainer_facts import hyperparameters
from rlexporter.exporter import Exporter
from rlexporter.model.step import RunFacts

_LEGACY_PPO = "trl_ppo_trainer_config"
"""Key under which legacy PPO passes its settings."""


class RLExporterTracker(GeneralTracker):  # type: ignore[misc] # accelerate is not typed
    """Serves each log line as a step. ``exporter`` starts with the training, on rank 0, on the next port if taken."""

    name = "rlexporter"
    requires_logging_directory = False

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._exporter = exporter
        self._begun = False

    @property
    def tracker(self) -> Exporter:
        """Return the exporter."""
        return self._exporter

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Begin the run with its settings, ``values``."""
        with self._exporter.run.errors.guard("event"):
            settings = values.get(_LEGACY_PPO, values)
            self._begin(catalog.PPO_LEGACY if _LEGACY_PPO in values else "", settings)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Serve the line ``values``; without ``step``, each line that is no evaluation is a step."""
        self._begin("", {})
        self._exporter.log(values, step=step)

    def finish(self) -> None:
        """End the run, at `Accelerator.end_training()`. Without that call it ends with the process."""
        self._exporter.end()

    def _begin(self, algorithm: str, settings: Mapping[str, Any]) -> None:
        if self._begun:
            return
        self._begun = True
        run = self._exporter.run
        with run.errors.guard("event"):
            self._exporter.start(fallback=True)
        with run.errors.guard("event"):
            numbers = hyperparameters(SimpleNamespace(**settings))
            run.begin(RunFacts(algorithm=algorithm, hyperparameters=numbers, open_ended=True))
