"""Start-up code of every Python under `rlexporter run`: waits for what trains or logs, and then attaches.

Python finds it by `PYTHONPATH`. Most of these processes train nothing, and some are of an environment without
rlexporter: so it imports nothing until it has to, never fails, and runs the sitecustomize that it hides.
"""

import os
import sys

_NAMES = os.path.join(os.path.dirname(__file__), "..", "..", "frameworks", "__init__.py")


def _awaited() -> set[str]:
    """Return what to wait for. The file with the names is run, not imported: it needs nothing of its package."""
    names: dict[str, dict[str, tuple[str, ...]]] = {}
    try:
        with open(_NAMES, encoding="utf-8") as file:
            exec(file.read(), names)  # noqa: S102 - a file of ours
    except OSError as error:
        _say(f"rlexporter: other frameworks are not watched: {error!r}")
    watched = names.get("WATCHED" if os.environ.get("RLEXPORTER_FROM") else "FRAMEWORKS", {})
    return {"transformers", "trl", *(module for modules in watched.values() for module in modules)}


class _Waiting:
    """Finder that sees the first import of what is awaited, and removes itself."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def] # types would be an import
        if name not in _AWAITED:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        _register()
        from importlib.util import find_spec

        return find_spec(name)


def _register() -> None:
    try:
        from rlexporter.integrations import registry

        registry.register_all()
    except Exception as error:  # noqa: BLE001 - the boundary: the program under way knows nothing of us
        if getattr(error, "name", None) != "rlexporter":
            _say(f"rlexporter: this process is not watched: {error!r}")


def _say(text: str) -> None:
    from contextlib import suppress

    with suppress(OSError, ValueError):  # stderr may be closed
        print(text, file=sys.stderr)


def _run_hidden() -> None:
    """Run the sitecustomize that this one hides; Python shows what it raises as usual."""
    folder = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)


_AWAITED = _awaited()
sys.meta_path.insert(0, _Waiting())
_run_hidden()
