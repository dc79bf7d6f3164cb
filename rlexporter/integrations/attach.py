"""`attach(trainer)`: finds the adapter for a trainer and hands it an exporter."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from rlexporter.config.settings import MAIN
from rlexporter.exporter import Exporter
from rlexporter.model.metric import SetupError

_LEGACY = ("step", "log_stats", "config", "accelerator")
"""What a trainer without callbacks has: PPO up to trl 0.11."""
_attached: weakref.WeakKeyDictionary[Any, Exporter] = weakref.WeakKeyDictionary()
"""The exporters of such trainers, which have no place for one."""


def attach(trainer: Any, **settings: Any) -> Exporter:
    """Serve what ``trainer`` trains, from now on; twice is once. Returns the exporter.

    Works with every trainer of transformers and TRL that takes callbacks, and with the PPO of trl 0.11 and earlier.
    Settings are those of `rlexporter.Exporter`. Raises SetupError for a setting that is unknown or unusable, for a
    port that is taken (with several ranks the next free one is used instead, since a rank that raises leaves the
    others waiting), and for an object that is no trainer.
    """
    if hasattr(trainer, "callback_handler"):
        return _attach_callback(trainer, settings)
    if all(hasattr(trainer, name) for name in _LEGACY):
        return attach_legacy(trainer, settings, fallback=trainer.accelerator.num_processes > 1)
    raise SetupError(
        f"attach() does not know what a {type(trainer).__name__} logs: it takes trainers of transformers and TRL "
        "that have callbacks, or step() and log_stats(). Any other loop: rlexporter.Exporter(...), then "
        "exporter.log(stats)"
    )


def _attach_callback(trainer: Any, settings: dict[str, Any]) -> Exporter:
    from rlexporter.integrations.callback import RLExporterCallback

    callback = next((each for each in trainer.callback_handler.callbacks if isinstance(each, RLExporterCallback)), None)
    if callback is None:
        callback = RLExporterCallback()
        trainer.callback_handler.callbacks.append(callback)
    if isinstance(callback.feed, Exporter):
        return callback.feed
    exporter = Exporter(**settings)
    callback.every_rank = exporter.settings.ranks != MAIN
    callback.adopt(trainer, exporter)
    try:
        exporter.start(fallback=trainer.args.world_size > 1)
    except BaseException:
        exporter.close()
        raise
    return exporter


def attach_legacy(trainer: Any, settings: dict[str, Any], *, fallback: bool) -> Exporter:
    """The same for PPO of trl 0.11 and earlier; ``fallback``: leave a taken port for the next free one.

    Ranks that serve nothing have no taps.
    """
    from rlexporter.adapters.ppo_legacy import LegacyTaps, run_facts

    if trainer in _attached:
        return _attached[trainer]
    exporter = Exporter(**settings)
    exporter.prepare(run_facts(trainer))
    if exporter.serves:
        exporter.start(fallback=fallback)
        LegacyTaps(trainer, exporter).install()
    _attached[trainer] = exporter
    exporter.on_close(functools.partial(_forget, weakref.ref(trainer)))
    return exporter


def _forget(trainer: weakref.ref[Any]) -> None:
    if (still := trainer()) is not None:
        _attached.pop(still, None)
