"""`RLExporterCallback`: the callback of transformers with an exporter of its own. Imports transformers."""

from __future__ import annotations

from typing import Any

from transformers.trainer_callback import CallbackHandler

from rlexporter.adapters.frames import callers, local
from rlexporter.adapters.transformers import RunCallback
from rlexporter.config import MAIN, Settings
from rlexporter.exporter import Exporter


class RLExporterCallback(RunCallback):
    """``Trainer(callbacks=[RLExporterCallback()])`` serves the run from the start of `train()` on.

    Settings are those of `rlexporter.Exporter`. Raises SetupError for one that is unknown or unusable.
    """

    def __init__(self, **settings: Any) -> None:
        every_rank = Settings.load(settings).ranks != MAIN
        super().__init__(lambda: Exporter(**settings), every_rank=every_rank)
        trainer = self._maker()
        if trainer is not None:
            self.adopt(trainer)

    def _maker(self) -> Any:
        """Return the trainer whose handler makes this callback, None where anybody else does.

        Its `train` is then watched whichever events it fires. Whoever makes a callback to hand it on (a user, `attach`)
        may be a method of another trainer: it is not asked.
        """
        handled = False
        for frame in callers():
            found = local(frame, "self")
            if found is self:
                continue
            if not isinstance(found, CallbackHandler):
                return found if handled and hasattr(type(found), "train") else None
            handled = True
        return None
