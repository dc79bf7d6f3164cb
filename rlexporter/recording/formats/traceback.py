"""Finds what ended a run in the last part of its console output: an exception, or Slurm."""

from __future__ import annotations

import re
from typing import Any

_BEGIN = re.compile(r".*Traceback \(most recent call last\):\s*")
_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w+)(?:\((\w+)\))?(?::|\s*$)")
"""The line after a traceback; Ray names the cause in parentheses: ``ray.exceptions.RayTaskError(ValueError): ...``."""
_HARMLESS = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_STOPPED = ("KeyboardInterrupt", "SystemExit")
_SLURM = re.compile(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT ")
_KILLED = re.compile(r"slurmstepd: error: Detected \d+ oom[_-]kill event")
_LONGEST = 2000
"""The part of a line that is looked at."""


class Ending:
    """How a run ends, from text that comes in pieces. What is before a log line ended nothing: `forget` it."""

    def __init__(self) -> None:
        self._rest = ""
        self._before = ""
        self._inside = False
        self._slurm = False
        self._found: dict[str, Any] | None = None

    @property
    def event(self) -> dict[str, Any] | None:
        """Return the event of the end as far as it is told; None if no exception got through to the end."""
        return self._found

    def forget(self) -> None:
        """Forget what came so far: training goes on."""
        self.__init__()  # type: ignore[misc] # all state is of one ending

    def feed(self, text: str) -> None:
        """Take the next piece of ``text``."""
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = ""
        for line in lines:
            self._line(line[:_LONGEST])
        self._rest = (self._rest + rest)[:_LONGEST]

    def close(self) -> None:
        """Take what came last as a line."""
        self.feed("\n")

    def _line(self, line: str) -> None:
        if _BEGIN.fullmatch(line):
            self._inside = not self._before.startswith(_HARMLESS)
            if self._inside and not self._slurm:
                self._found = {"event": "crash", "type": ""}
        elif _SLURM.match(line):
            self._found, self._slurm = {"event": "state", "state": "preempted"}, True
        elif _KILLED.match(line) and not self._slurm:
            self._found = {"event": "crash", "type": "OutOfMemory"}
        elif self._inside and line and not line[0].isspace():
            self._inside = False
            if not self._slurm:
                self._found = _named(line)
        self._before = line or self._before


def _named(line: str) -> dict[str, Any]:
    """Return the event of the exception in the ``line`` below a traceback."""
    match = _EXCEPTION.match(line)
    name = (match[2] or match[1]) if match else ""
    if name in _STOPPED:
        return {"event": "state", "state": "stopped", "exception": name}
    return {"event": "crash", "type": name}
