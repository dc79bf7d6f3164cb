"""The modules of others that rlexporter waits for, and what it does once one was imported. Imports none of them.

`register` is what `import rlexporter` does: `report_to="rlexporter"`, and the loggers that are asked for.
`register_all` is what `rlexporter run` does: it attaches to every trainer that the process builds, and reads other
frameworks, without a change to the script.

Of a module that is loaded already this is done at once. Else a finder on `sys.meta_path` waits for this one module,
removes itself, and acts after the module has run.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlexporter.frameworks import LOGGERS, WATCHED

if TYPE_CHECKING:
    from importlib.abc import Loader

    from rlexporter.integrations.logged_run import Sources
else:
    Loader = object  # importing importlib.abc takes longer than all the rest of `import rlexporter`

logger = logging.getLogger("rlexporter")

NAME = "rlexporter"
"""What `report_to` and trackers call it."""
VARIABLE = "RLEXPORTER_FROM"
_sources: Sources | None = None
"""The sources of this process, once a module of one of them has been imported."""


def register() -> None:
    """Make `report_to="rlexporter"` work from now on, and read the loggers asked for; twice changes nothing."""
    after_import("transformers.integrations.integration_utils", _add_to_report)
    read_loggers()


def register_all() -> None:
    """Attach to every trainer from now on, and read every framework; a second call changes nothing."""
    after_import("transformers.trainer", _add_default_callback)
    after_import("swift.trainers.patcher", _add_to_swift)
    after_import("trl.trainer.ppo_trainer", _watch_legacy)
    read_loggers(*(name for name in WATCHED if name not in LOGGERS))


def read_loggers(*always: str) -> None:
    """Read the loggers that `RLEXPORTER_FROM` names from now on, and those of ``always``; twice changes nothing."""
    for name in _order(always):
        for module in WATCHED[name][1:]:
            after_import(module, _Watch(name, always))


@dataclass(frozen=True)
class _Watch:
    """Watches a module of a logger. Equal to another one of the same logger, so that none waits twice."""

    name: str
    always: tuple[str, ...]

    def __call__(self, module: ModuleType) -> None:
        global _sources
        from rlexporter.integrations.logged_run import Sources

        if _sources is None:
            _sources = Sources(_order(self.always))
        if self.name in _sources.order:
            import_module(WATCHED[self.name][0]).watch(module, _sources.feed(self.name))


def _order(always: tuple[str, ...]) -> tuple[str, ...]:
    """Return the loggers to read, the preferred first: frameworks call the others themselves, so they are before."""
    asked = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    unknown = [name for name in asked if name not in WATCHED]
    if unknown:
        logger.warning("rlexporter: %s=%s is no logger; there are %s", VARIABLE, unknown[0], ", ".join(WATCHED))
    known = dict.fromkeys(name for name in (*always, *asked) if name in WATCHED)
    return tuple(sorted(known, key=lambda name: name in LOGGERS))


def _add_to_report(module: ModuleType) -> None:
    from rlexporter.integrations.callback import RLExporterCallback

    module.INTEGRATION_TO_CALLBACK.setdefault(NAME, RLExporterCallback)


def _add_default_callback(module: ModuleType) -> None:
    """Add ours to the default callbacks; modern PPO, which skips the Trainer's `__init__`, reads that list too."""
    from rlexporter.integrations.callback import DefaultCallback

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


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call ``act`` with the module ``name``, now or once it is imported; an equal call that waits is not repeated.

    An error in ``act`` is logged, and the import goes on.
    """
    if module := sys.modules.get(name):
        _guarded(act, module)
    elif not any(isinstance(finder, _Finder) and finder.waits_for == (name, act) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, act))


def _guarded(act: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        act(module)
    except Exception as error:  # the boundary: nothing of ours may reach what imports the module
        logger.warning("rlexporter cannot be part of %s: %s", module.__name__, error, exc_info=error)


class _Finder:
    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.waits_for = (name, act)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name, act = self.waits_for
        if fullname != name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, act)
        return spec


class _Loader(Loader):
    """Runs the module with its own loader, then acts."""

    def __init__(self, own: Loader, act: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._act = act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        _guarded(self._act, module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)
