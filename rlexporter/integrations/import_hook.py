"""Hook that acts once a module has been imported, whenever that is, without importing it.

If the module is loaded already, it acts at once. Else a finder on `sys.meta_path` waits for this one module, removes
itself, and acts after the module has run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

logger = logging.getLogger("rlexporter")


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


class _Finder(MetaPathFinder):
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
