"""`DefaultCallback`: the callback of every trainer under `rlexporter run`. Imports transformers."""

from __future__ import annotations

import logging
from typing import Any

from rlexporter.adapters.transformers import RunCallback
from rlexporter.exporter import Exporter
from rlexporter.integrations.callback import RLExporterCallback
from rlexporter.model.errors import SetupError

logger = logging.getLogger("rlexporter")


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

    def watches(self, args: Any) -> bool:
        """Tell whether this callback feeds a run: not for a trainer that the script gave a callback of ours."""
        if self.run is None and not self._closed and self._is_spare():
            self._leave()
        return super().watches(args)

    def _is_spare(self) -> bool:
        found = self._trainer.callback_handler.callbacks if self._trainer is not None else ()
        return any(isinstance(each, RLExporterCallback) and each is not self for each in found)

    def _leave(self) -> None:
        """Leave the trainer's callbacks by a new list, since the old one is being iterated over."""
        self._undo()
        self._closed = True
        handler = self._trainer.callback_handler
        handler.callbacks = [each for each in handler.callbacks if each is not self]
