"""Start-up code of every Python under `rlexporter run`: waits for what trains or logs, and then attaches.

Python finds it by `PYTHONPATH`. Most of these processes train nothing, some are of an environment without rlexporter,
and some of a Python that rlexporter does not know: so it imports nothing until it has to, never fails, and runs the
sitecustomize that it hides. Any Python since 2.7 has to be able to read this file: it has no annotations.
"""

# mypy: disallow-untyped-calls=False, disallow-untyped-defs=False
# ruff: noqa: SIM105, UP004, UP031, UP036 - as Python 2 and 3.6 write it

import os
import sys

_NAMES = os.path.join(os.path.dirname(__file__), "..", "..", "frameworks", "__init__.py")


def _awaited():
    """Return what to wait for. The file with the names is run, not imported: it needs nothing of its package."""
    names = {}  # type: ignore[var-annotated]
    try:
        with open(_NAMES, encoding="utf-8") as file:
            exec(file.read(), names)  # noqa: S102 - a file of ours
    except OSError as error:
        _say("rlexporter: other frameworks are not watched: %r" % (error,))
    watched = names.get("WATCHED" if os.environ.get("RLEXPORTER_FROM") else "FRAMEWORKS", {})
    return {"transformers", "trl"}.union(*[found[1:] for found in watched.values()])


class _Waiting(object):
    """Finder that sees the first import of what is awaited, and removes itself."""

    def __init__(self, awaited):
        self._awaited = awaited

    def find_spec(self, name, path=None, target=None):
        if name not in self._awaited:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        _register()
        from importlib.util import find_spec

        return find_spec(name)


def _register():
    try:
        from rlexporter.integrations import registry

        registry.register_all()
    except Exception as error:  # noqa: BLE001 - the boundary: the program under way knows nothing of us
        if getattr(error, "name", None) != "rlexporter":
            _say("rlexporter: this process is not watched: %r" % (error,))


def _say(text):
    try:
        sys.stderr.write(text + "\n")
    except (AttributeError, OSError, ValueError):  # stderr may be closed
        pass


def _run_hidden():
    """Run the sitecustomize that this one hides; Python shows what it raises as usual."""
    folder = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        # Python 2 does not say which module is missing, but in words.
        if getattr(error, "name", str(error).rpartition(" ")[2]) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)


if sys.version_info >= (3, 10):  # the oldest that rlexporter is made for
    sys.meta_path.insert(0, _Waiting(_awaited()))
_run_hidden()
