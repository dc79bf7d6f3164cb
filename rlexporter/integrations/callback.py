"""`RLExporterCallback`, a callback for transformers with an exporter of its own, and `DefaultCallback`, that of every
trainer under `rlexporter run`. Imports transformers.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from rlexporter.adapters.transformers import RunCallback
from rlexporter.config.settings import MAIN, Settings, fitted
from rlexporter.exporter import Exporter
from rlexporter.model.errors import SetupError, require_torch
from rlexporter.model.sink import TrainedRun
from rlexporter.model.step import RunFacts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlexporter.config.arguments import SettingArguments

made: weakref.WeakSet[RLExporterCallback] = weakref.WeakSet()
"""The callbacks of this process: where there is one, lines that loggers get are not read as well."""

logger = logging.getLogger("rlexporter")


class RLExporterCallback(RunCallback):
    """Callback that serves a run from the start of `train()` on: ``Trainer(callbacks=[RLExporterCallback()])``.

    ``settings`` are those of `rlexporter.Exporter`.

    Raises:
        SetupError: torch is missing, or a setting is unknown or unusable.
    """

    def __init__(self, **settings: Unpack[SettingArguments]) -> None:
        require_torch("rlexporter.RLExporterCallback")
        super().__init__(self._serve)
        self._follow(Settings.load(settings))
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
        self._follow(exporter._run.settings)
        self.adopt(trainer, exporter.run)

    def release(self) -> None:
        """Stop watching, because the exporter was closed."""
        super().release()
        self.exporter = None

    def _follow(self, settings: Settings) -> None:
        self.every_rank = settings.ranks != MAIN
        self.brakes, self.keeps_good = settings.on_critical, settings.keep_good

    def _serve(self, facts: RunFacts | None) -> TrainedRun:
        """Open a run. The next free port replaces a taken one: a rank that raises would leave the others waiting."""
        exporter = self.exporter = Exporter(**fitted(self._settings, facts.hyperparameters if facts else {}))
        if facts is not None:
            exporter.run.prepare(facts)
        with exporter._run.errors.guard("event"):
            exporter.start(fallback=True)
        return exporter.run


class DefaultCallback(RLExporterCallback):
    """Callback that leaves the run to an `RLExporterCallback` that the script itself gave the trainer, if any.

    It is a class of its own, since transformers warns of two callbacks of one class.
    """

    def __init__(self) -> None:
        """Make the callback without ever raising: a trainer makes it, and its script has not asked for it."""
        try:
            super().__init__()
        except Exception as error:  # the boundary: nothing of ours may reach a trainer
            RunCallback.__init__(self, lambda facts: Exporter().run)
            self._closed = True
            trace = None if isinstance(error, SetupError) else error
            logger.warning("rlexporter does not watch this training: %s", error, exc_info=trace)

    def _is_chosen(self) -> bool:
        """Return False for a trainer that the script gave a callback of ours."""
        if self.run is None and not self._closed and self._trainer is not None:
            handler = self._trainer.callback_handler
            others = [callback for callback in handler.callbacks if callback is not self]
            if any(isinstance(callback, RLExporterCallback) for callback in others):
                self._undo()
                self._closed = True
                handler.callbacks = others  # a new list, since the old one is being iterated over
        return super()._is_chosen()
