"""`RLExporterCallback`: the callback of transformers with an exporter of its own. Imports transformers."""

from __future__ import annotations

from typing import Any

from rlexporter.adapters.transformers import RunCallback
from rlexporter.config.settings import MAIN, Settings
from rlexporter.exporter import Exporter


class RLExporterCallback(RunCallback):
    """``Trainer(callbacks=[RLExporterCallback()])`` serves the run from the start of `train()` on.

    Settings are those of `rlexporter.Exporter`. Raises SetupError for one that is unknown or unusable.
    """

    def __init__(self, **settings: Any) -> None:
        every_rank = Settings.load(settings).ranks != MAIN
        super().__init__(lambda: Exporter(**settings), every_rank=every_rank)
        trainer = self.maker()
        if trainer is not None:
            self.adopt(trainer)
