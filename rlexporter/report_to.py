"""`report_to="rlexporter"`: makes transformers know the name, whenever its integrations are imported.

Where they are loaded already the callback is registered at once; else a finder on `sys.meta_path` waits for the one
module, registers after it has run, and has by then removed itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAME = "rlexporter"

_MODULE = "transformers.integrations.integration_utils"


def register() -> None:
    """Let `report_to="rlexporter"` work from now on; twice is once."""
    if module := sys.modules.get(_MODULE):
        _add_to(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _add_to(module: ModuleType) -> None:
    from rlexporter.callback import RLExporterCallback

    module.INTEGRATION_TO_CALLBACK.setdefault(NAME, RLExporterCallback)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Runs the module with its own loader, then registers."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        _add_to(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)
