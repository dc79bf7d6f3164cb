"""`DefaultCallback`: what every trainer of a process has that was started by `rlexporter run`. Imports transformers."""

from __future__ import annotations

import logging
from typing import Any

from rlexporter.adapters.transformers import RunCallback
from rlexporter.exporter import Exporter
from rlexporter.integrations.callback import RLExporterCallback
from rlexporter.model.errors import SetupError

logger = logging.getLogger("rlexporter")


class DefaultCallback(RLExporterCallback):
    """Leaves the run to an `RLExporterCallback` that the script itself gave the trainer, which may have settings.

    A class of its own, since transformers warns of two callbacks of one class.
    """

    def __init__(self) -> None:
        """Never raises: a trainer makes it, and nobody there has asked for it."""
        try:
            super().__init__()
        except Exception as error:  # the boundary: nothing of ours may reach a trainer
            RunCallback.__init__(self, lambda facts: Exporter().run)
            self._closed = True
            trace = None if isinstance(error, SetupError) else error
            logger.warning("rlexporter does not watch this training: %s", error, exc_info=trace)

    def watches(self, args: Any) -> bool:
        """As any other, but for a trainer that has one which was asked for."""
        if self.run is None and not self._closed and self._is_spare():
            self._leave()
        return super().watches(args)

    def _is_spare(self) -> bool:
        found = self._trainer.callback_handler.callbacks if self._trainer is not None else ()
        return any(isinstance(each, RLExporterCallback) and each is not self for each in found)

    def _leave(self) -> None:
        """A new list: the old one is being walked."""
        self._undo()
        self._closed = True
        handler = self._trainer.callback_handler
        handler.callbacks = [each for each in handler.callbacks if each is not self]
