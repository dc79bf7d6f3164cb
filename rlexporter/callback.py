"""`RLExporterCallback`: the callback of transformers with an exporter of its own. Imports transformers."""

from __future__ import annotations

from typing import Any

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
        self._find_maker()

    def _find_maker(self) -> None:
        """The trainer that is being built, if one is: its `train` is then watched whichever events it fires."""
        for frame in callers():
            found = local(frame, "self")
            if hasattr(type(found), "train") and hasattr(type(found), "get_train_dataloader"):
                self.adopt(found)
                return
