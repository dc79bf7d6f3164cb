"""Attachment to every trainer that this process builds, and to other frameworks, without a change to the script."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from rlexporter.integrations.import_hook import after_import
from rlexporter.integrations.loggers import registry
from rlexporter.integrations.report_to import NAME

logger = logging.getLogger("rlexporter")


def register() -> None:
    """Attach to every trainer from now on, and read the loggers that are asked for; a second call changes nothing."""
    after_import("transformers.trainer", _add_default_callback)
    after_import("swift.trainers.patcher", _add_to_swift)
    after_import("trl.trainer.ppo_trainer", _watch_legacy)
    registry.register(*registry.FRAMEWORKS)


def _add_default_callback(module: ModuleType) -> None:
    """Add ours to the default callbacks; modern PPO, which skips the Trainer's `__init__`, reads that list too."""
    from rlexporter.integrations.default_callback import DefaultCallback

    if DefaultCallback not in module.DEFAULT_CALLBACKS:
        module.DEFAULT_CALLBACKS.append(DefaultCallback)


def _add_to_swift(module: ModuleType) -> None:
    """Add ours again: this module of ms-swift has put a list of its own in place of the default callbacks."""
    _add_default_callback(module.trainer)


def _watch_legacy(module: ModuleType) -> None:
    """Attach at the end of `__init__` to PPO up to trl 0.11, which has no callbacks."""
    trainer = module.PPOTrainer
    if hasattr(trainer, "add_callback"):
        return
    build = trainer.__init__

    @functools.wraps(build)
    def build_watched(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        _attach(self)

    trainer.__init__ = build_watched


def _attach(trainer: Any) -> None:
    """Attach unless our tracker reports; the next free port replaces a taken one, which the script did not choose."""
    try:
        from rlexporter.integrations.attach import attach_legacy

        if not any(tracker.name == NAME for tracker in trainer.accelerator.trackers):
            attach_legacy(trainer, {}, fallback=True)
    except Exception as error:  # the boundary: nothing of ours may reach a script that knows nothing of us
        logger.warning("rlexporter does not watch this training: %s", error, exc_info=error)
