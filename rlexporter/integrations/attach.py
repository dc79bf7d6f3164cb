"""`attach(trainer)`: finds the adapter for a trainer and hands it an exporter."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlexporter.adapters.selection import TAPS
from rlexporter.adapters.trainer_facts import hyperparameters
from rlexporter.config.settings import fitted
from rlexporter.exporter import Exporter
from rlexporter.model.errors import SetupError, require_torch

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
        SetupError: torch is missing, a setting is unknown or unusable, a port is taken, or the object is no trainer.
    """
    return attach_at(trainer, settings)


def attach_at(trainer: Any, settings: SettingArguments, *, fallback: bool = False) -> Exporter:
    """Attach as `attach` does; with ``fallback`` the next free port replaces a taken one for a single rank too."""
    require_torch("rlexporter.attach")
    try:
        if hasattr(trainer, "callback_handler"):
            return _attach_callback(trainer, settings, fallback=fallback or trainer.args.world_size > 1)
        if "LegacyTaps" in TAPS and all(hasattr(trainer, name) for name in _LEGACY):
            return attach_legacy(trainer, settings, fallback=fallback or trainer.accelerator.num_processes > 1)
    except (AttributeError, TypeError) as error:
        raise SetupError(
            f"attach() takes a whole trainer, and this {type(trainer).__name__} is none: {error}"
        ) from error
    raise SetupError(
        f"attach() does not know what a {type(trainer).__name__} logs: it takes trainers of transformers and TRL "
        "that have callbacks, or step() and log_stats(). Any other loop: rlexporter.Exporter(...), then "
        "exporter.log(stats)"
    )


def _attach_callback(trainer: Any, settings: SettingArguments, *, fallback: bool) -> Exporter:
    from rlexporter.integrations.callback import RLExporterCallback

    callbacks = trainer.callback_handler.callbacks
    callback = next((callback for callback in callbacks if isinstance(callback, RLExporterCallback)), None)
    if callback is None:
        callback = RLExporterCallback()
        trainer.callback_handler.callbacks.append(callback)
    if callback.exporter is not None:
        return callback.exporter
    exporter = Exporter(**fitted(settings, hyperparameters(trainer.args)))
    with _undone(exporter):
        callback.attach(trainer, exporter)
        exporter.start(fallback=fallback)
    return exporter


def attach_legacy(trainer: Any, settings: SettingArguments, *, fallback: bool) -> Exporter:
    """Attach to PPO of trl 0.11 and earlier; with ``fallback`` the next free port replaces a taken one.

    Ranks that serve nothing get no taps.
    """
    from rlexporter.adapters.brake import LegacyBrake
    from rlexporter.adapters.keeper import Keeper

    adapter = import_module(TAPS["LegacyTaps"])
    if trainer in _attached:
        return _attached[trainer]
    exporter = Exporter(**settings)
    run = exporter._run
    with _undone(exporter):
        run.prepare(adapter.run_facts(trainer))
        if run.serves:
            exporter.start(fallback=fallback)
            adapter.LegacyTaps(trainer, run).install()
        if run.settings.on_critical or run.settings.keep_good:
            keeper = None
            if run.settings.keep_good and trainer.accelerator.is_main_process:
                keeper = Keeper(lambda: (run.name, run.attempt), functools.partial(run.errors.add, "keep_good"))
            LegacyBrake(trainer, run, asks=bool(run.settings.on_critical), keeper=keeper).install()
    _attached[trainer] = exporter
    run.feed.on_close(functools.partial(_forget, weakref.ref(trainer)))
    return exporter


@contextlib.contextmanager
def _undone(exporter: Exporter) -> Iterator[None]:
    """Close ``exporter`` if what is done with it raises."""
    try:
        yield
    except BaseException:
        exporter.close()
        raise


def _forget(trainer: weakref.ref[Any]) -> None:
    if (still := trainer()) is not None:
        _attached.pop(still, None)
