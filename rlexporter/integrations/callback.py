"""`RLExporterCallback`: a callback for transformers with an exporter of its own. Imports transformers."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from rlexporter.adapters.transformers import RunCallback
from rlexporter.config.settings import MAIN, Settings
from rlexporter.exporter import Exporter
from rlexporter.model.sink import TrainedRun
from rlexporter.model.step import RunFacts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlexporter.config.arguments import SettingArguments


made: weakref.WeakSet[RLExporterCallback] = weakref.WeakSet()
"""The callbacks of this process: where there is one, lines that loggers get are not read as well."""


class RLExporterCallback(RunCallback):
    """Callback that serves a run from the start of `train()` on: ``Trainer(callbacks=[RLExporterCallback()])``.

    ``settings`` are those of `rlexporter.Exporter`.

    Raises:
        SetupError: a setting is unknown or unusable.
    """

    def __init__(self, **settings: Unpack[SettingArguments]) -> None:
        every_rank = Settings.load(settings).ranks != MAIN
        super().__init__(self._serve, every_rank=every_rank)
        self._settings = settings
        self.exporter: Exporter | None = None
        """The exporter that serves the run, from its start until it is closed."""
        made.add(self)
        trainer = self.maker()
        if trainer is not None:
            self.adopt(trainer)

    def attach(self, trainer: Any, exporter: Exporter) -> None:
        """Watch ``trainer`` from now on, and serve what it trains by ``exporter``."""
        self.exporter = exporter
        self.every_rank = exporter.run.settings.ranks != MAIN
        self.adopt(trainer, exporter.run)

    def release(self) -> None:
        """Stop watching, because the exporter was closed."""
        super().release()
        self.exporter = None

    def _serve(self, facts: RunFacts | None) -> TrainedRun:
        """Open a run. The next free port replaces a taken one: a rank that raises would leave the others waiting."""
        exporter = self.exporter = Exporter(**self._settings)
        if facts is not None:
            exporter.run.prepare(facts)
        with exporter.run.errors.guard("event"):
            exporter.start(fallback=True)
        return exporter.run
