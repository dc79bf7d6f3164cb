"""`attach(trainer)`: finds the adapter for a trainer and hands it an exporter."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from rlexporter.exporter import Exporter
from rlexporter.model.errors import SetupError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlexporter.config.arguments import SettingArguments

_LEGACY = ("step", "log_stats", "config", "accelerator")
"""Attributes by which a trainer without callbacks is known: PPO up to trl 0.11."""
_attached: weakref.WeakKeyDictionary[Any, Exporter] = weakref.WeakKeyDictionary()
"""Exporters of trainers without callbacks, which cannot hold one themselves."""


def attach(trainer: Any, **settings: Unpack[SettingArguments]) -> Exporter:
    """Serve what ``trainer`` trains from now on, and return the exporter; a second call changes nothing.

    Works with every trainer of transformers and TRL that takes callbacks, and with the PPO of trl 0.11 and earlier.
    ``settings`` are those of `rlexporter.Exporter`. With several ranks the next free port replaces a taken one, since
    a rank that raises would leave the others waiting.

    Raises:
        SetupError: a setting is unknown or unusable, a port is taken, or the object is no trainer.
    """
    return attach_at(trainer, settings)


def attach_at(trainer: Any, settings: SettingArguments, *, fallback: bool = False) -> Exporter:
    """Attach as `attach` does; with ``fallback`` the next free port replaces a taken one for a single rank too."""
    if hasattr(getattr(trainer, "callback_handler", None), "callbacks") and hasattr(trainer, "args"):
        return _attach_callback(trainer, settings, fallback=fallback or trainer.args.world_size > 1)
    if all(hasattr(trainer, name) for name in _LEGACY):
        return attach_legacy(trainer, settings, fallback=fallback or trainer.accelerator.num_processes > 1)
    raise SetupError(
        f"attach() does not know what a {type(trainer).__name__} logs: it takes trainers of transformers and TRL "
        "that have callbacks, or step() and log_stats(). Any other loop: rlexporter.Exporter(...), then "
        "exporter.log(stats)"
    )


def _attach_callback(trainer: Any, settings: SettingArguments, *, fallback: bool) -> Exporter:
    from rlexporter.integrations.callback import RLExporterCallback

    callback = next((each for each in trainer.callback_handler.callbacks if isinstance(each, RLExporterCallback)), None)
    if callback is None:
        callback = RLExporterCallback()
        trainer.callback_handler.callbacks.append(callback)
    if callback.exporter is not None:
        return callback.exporter
    exporter = Exporter(**settings)
    callback.attach(trainer, exporter)
    try:
        exporter.start(fallback=fallback)
    except BaseException:
        exporter.close()
        raise
    return exporter


def attach_legacy(trainer: Any, settings: SettingArguments, *, fallback: bool) -> Exporter:
    """Attach to PPO of trl 0.11 and earlier; with ``fallback`` the next free port replaces a taken one.

    Ranks that serve nothing get no taps.
    """
    from rlexporter.adapters.ppo_legacy import LegacyTaps, run_facts

    if trainer in _attached:
        return _attached[trainer]
    exporter = Exporter(**settings)
    run = exporter.run
    run.prepare(run_facts(trainer))
    if run.serves:
        exporter.start(fallback=fallback)
        LegacyTaps(trainer, run).install()
    _attached[trainer] = exporter
    run.sink.on_close(functools.partial(_forget, weakref.ref(trainer)))
    return exporter


def _forget(trainer: weakref.ref[Any]) -> None:
    if (still := trainer()) is not None:
        _attached.pop(still, None)
