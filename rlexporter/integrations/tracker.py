"""A tracker of accelerate: `PPOConfig(log_with=[RLExporterTracker(exporter)])`, or `Accelerator(log_with=...)`.

It sees what is logged, and no tensors: where there is a trainer to attach to, `rlexporter.attach` sees more. The only
file that imports accelerate.
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
"""Where legacy PPO puts its settings."""


class RLExporterTracker(GeneralTracker):  # type: ignore[misc] # accelerate is not typed
    """Serves each log line as a step. ``exporter`` is started with the training, on rank 0; a taken port moves on."""

    name = "rlexporter"
    requires_logging_directory = False

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._exporter = exporter
        self._begun = False

    @property
    def tracker(self) -> Exporter:
        """The exporter."""
        return self._exporter

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Begin the run, with its settings."""
        with self._exporter.run.errors.guard("event"):
            settings = values.get(_LEGACY_PPO, values)
            self._begin(catalog.PPO_LEGACY if _LEGACY_PPO in values else "", settings)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Serve one line; without a ``step`` each one that is no evaluation is a step."""
        self._begin("", {})
        self._exporter.log(values, step=step)

    def finish(self) -> None:
        """End the run, at `Accelerator.end_training()`. Where nobody calls that, it ends with the process."""
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
