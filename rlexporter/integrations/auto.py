"""Attaching to whatever trainer this process builds, without a word of the script that builds it."""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from rlexporter.integrations.import_hook import after_import
from rlexporter.integrations.report_to import NAME

logger = logging.getLogger("rlexporter")


def register() -> None:
    """Attach to every trainer from now on; twice is once."""
    after_import("transformers.trainer", _add_default_callback)
    after_import("trl.trainer.ppo_trainer", _watch_legacy)


def _add_default_callback(module: ModuleType) -> None:
    """Modern PPO, which does not build on the Trainer's `__init__`, reads the same list."""
    from rlexporter.integrations.default_callback import DefaultCallback

    if DefaultCallback not in module.DEFAULT_CALLBACKS:
        module.DEFAULT_CALLBACKS.append(DefaultCallback)


def _watch_legacy(module: ModuleType) -> None:
    """PPO up to trl 0.11 has no callbacks: the end of its `__init__` is the place to attach."""
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
    """Unless it reports by our tracker. A taken port is left for the next one: this script did not choose it."""
    try:
        from rlexporter.integrations.attach import attach_legacy

        if not any(tracker.name == NAME for tracker in trainer.accelerator.trackers):
            attach_legacy(trainer, {}, fallback=True)
    except Exception as error:  # the boundary: nothing of ours may reach a script that knows nothing of us
        logger.warning("rlexporter does not watch this training: %s", error, exc_info=error)
