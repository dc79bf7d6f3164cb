"""`attach(trainer)`: finds the adapter for a trainer and hands it an exporter."""

from __future__ import annotations

from typing import Any

from rlexporter.exporter import Exporter
from rlexporter.model import SetupError


def attach(trainer: Any, **settings: Any) -> Exporter:
    """Serve what ``trainer`` trains, from now on; twice is once. Returns the exporter.

    Works with every trainer of transformers and TRL that takes callbacks. Settings are those of
    `rlexporter.Exporter`. Raises SetupError for a setting that is unknown or unusable, for a port that is taken (with
    several ranks the next free one is used instead, since a rank that raises leaves the others waiting), and for an
    object that is no trainer.
    """
    if not hasattr(trainer, "callback_handler"):
        raise SetupError(
            f"attach() does not know what a {type(trainer).__name__} logs: it takes trainers of transformers and TRL "
            "that have callbacks. Any other loop: rlexporter.Exporter(...), then exporter.log(stats)"
        )
    from rlexporter.callback import RLExporterCallback

    callback = next((each for each in trainer.callback_handler.callbacks if isinstance(each, RLExporterCallback)), None)
    if callback is None:
        callback = RLExporterCallback()
        trainer.callback_handler.callbacks.append(callback)
    if isinstance(callback.feed, Exporter):
        return callback.feed
    exporter = Exporter(**settings)
    callback.adopt(trainer, exporter)
    exporter.start(fallback=trainer.args.world_size > 1)
    return exporter
