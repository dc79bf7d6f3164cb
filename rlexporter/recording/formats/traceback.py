"""Finds the exception that ended a run in the last part of its console output."""

from __future__ import annotations

import re
from typing import Any

_BEGIN = re.compile(r"^.*Traceback \(most recent call last\):\s*$", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w+)(?:\((\w+)\))?(?::|\s*$)")
"""The line after a traceback; Ray names the cause in parentheses: ``ray.exceptions.RayTaskError(ValueError): ...``."""
_HARMLESS = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_STOPPED = ("KeyboardInterrupt", "SystemExit")


def ending(text: str) -> dict[str, Any] | None:
    """Return the event of the exception that ``text`` ends with; None if no exception got through to the end."""
    for match in reversed(list(_BEGIN.finditer(text))):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        if not before.startswith(_HARMLESS):
            name = _name(text[match.end() :])
            if name in _STOPPED:
                return {"event": "state", "state": "stopped", "exception": name}
            return {"event": "crash", "type": name}
    return None


def _name(text: str) -> str:
    """Return the class of the exception below a traceback; empty if the text breaks off before it."""
    for line in text.split("\n"):
        if line and not line[0].isspace():
            match = _EXCEPTION.match(line)
            return (match[2] or match[1]) if match else ""
    return ""
