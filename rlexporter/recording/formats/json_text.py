"""JSON: a `trainer_state.json`, a list of log lines, or JSON lines, one object each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlexporter.recording.source import UNDERSTOOD, Found, Line, UnreadableError, shortened
from rlexporter.recording.writers import STEPS

LONGEST = 8 * 1024 * 1024
"""The length of a line of which no more pieces are kept."""
_OBJECT = re.compile(r'\s*\{\s*["}]')
_MOST_NAMED = 5


class JsonLines:
    """Reads JSON lines from a text that comes in pieces.

    ``damaged`` is called with the error of each line that is none; the others are read nevertheless, if it does not
    raise.
    """

    ending = None
    """How the run would have ended if nothing more comes: JSON lines never say."""

    def __init__(self, path: Path, damaged: Callable[[UnreadableError], None]) -> None:
        self._path = path
        self._damaged = damaged
        self._rest = ""
        self._number = 0
        self._first = True
        self._too_long = False
        self.found = 0

    def feed(self, text: str) -> Iterator[Line]:
        """Yield the lines that end in the next piece of ``text``."""
        if len(self._rest) > LONGEST and not self._too_long:
            self._too_long = True
            self._damaged(UnreadableError(f"{self._path}:{self._number + 1}: is longer than {LONGEST} characters"))
        *whole, rest = text.split("\n")  # not `splitlines()`: JSON allows other line ends inside a text
        if whole:
            whole[0] = self._rest + whole[0]
        self._rest = rest if whole else "" if self._too_long else self._rest + rest
        for line in whole:
            self._number += 1
            if self._too_long:
                self._too_long = False
            elif line.strip():
                yield from self._parsed(line)

    def settle(self) -> Iterator[Line]:
        """Yield what waited for more text: nothing does."""
        return iter(())

    def close(self) -> Iterator[Line]:
        """Yield the last line, unless a killed process was writing it."""
        line, self._rest = self._rest, ""
        self._number += 1
        if line.strip() and not self._too_long:
            yield from self._parsed(line, last=True)

    def _parsed(self, line: str, *, last: bool = False) -> Iterator[Line]:
        where = f"{self._path}:{self._number}"
        try:
            value = _loaded(line)
        except (ValueError, RecursionError) as error:
            if self._first or not last:
                hint = f": {UNDERSTOOD}" if self._first else ""
                self._damaged(UnreadableError(f"{where}: is no JSON: {error}{hint}"))
            return
        if isinstance(value, dict):
            self._first = False
            self.found += 1
            yield Line(where, value)
        else:
            self._damaged(_no_object(where, value))


def read(path: Path, text: str) -> Found | None:
    """Return the objects in ``text``, None if it is no JSON. Raises UnreadableError, also while they are iterated."""
    try:
        whole = _loaded(text)
    except (ValueError, RecursionError):
        return _json_lines(path, text) if _begins_as_lines(text) else None
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        return Found(path, _listed(f"{path}: log_history", whole["log_history"]))
    if isinstance(whole, dict) and "\n" not in text.strip():
        return Found(path, [Line(f"{path}:1", whole)])
    if isinstance(whole, list) and any(isinstance(each, dict) for each in whole):
        return Found(path, _listed(f"{path}: ", whole))
    what = f"an object with {_some(whole)}" if isinstance(whole, dict) else shortened(text, 40)
    raise UnreadableError(f"{path}: is JSON, but no recorded run: {what}: {UNDERSTOOD}")


def _some(whole: dict[str, object]) -> str:
    return shortened(", ".join(whole)) or "nothing in it"


def _begins_as_lines(text: str) -> bool:
    """Return True if the text is meant as JSON lines; a program may print one object before its usual output."""
    return begin_as_lines([line for line in text[:1_000_000].split("\n") if line.strip()][:2]) is not False


def begin_as_lines(begun: list[str]) -> bool | None:
    """Return True if the first two lines that are not blank begin JSON lines; None if one alone does not tell."""
    if not _OBJECT.match(begun[0]):
        return False
    if any(f'"{key}"' in begun[0] for key in (*STEPS, "event")):
        return True
    return None if len(begun) < 2 else bool(_OBJECT.match(begun[1]))


def _json_lines(path: Path, text: str) -> Found:
    """Return the lines of a text; of a recording damaged ones are left out, as a full disk leaves them."""
    damaged: list[UnreadableError] = []
    reader = JsonLines(path, damaged.append)
    lines = [*reader.feed(text), *reader.close()]
    if not damaged:
        return Found(path, lines)
    if not any("event" in line.logs for line in lines):
        raise damaged[0]
    first, more = damaged[:_MOST_NAMED], len(damaged) - _MOST_NAMED
    named = "; ".join(str(each).removeprefix(f"{path}:") for each in first)
    which = (
        f"left out a damaged line: {named}" if len(damaged) == 1 else f"left out {len(damaged)} damaged lines: {named}"
    )
    return Found(path, lines, (which + (f"; and {more} more" if more > 0 else ""),))


def _loaded(text: str) -> Any:
    """Return what JSON ``text`` holds. Raises ValueError and RecursionError for what is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        return json.loads(text, parse_int=float)  # an integer of more digits than Python reads


def _listed(where: str, lines: list[object]) -> Iterator[Line]:
    for i, line in enumerate(lines):
        yield _object(f"{where}[{i}]", line)


def _object(where: str, value: object) -> Line:
    if not isinstance(value, dict):
        raise _no_object(where, value)
    return Line(where, value)


def _no_object(where: str, value: object) -> UnreadableError:
    return UnreadableError(f"{where}: is no JSON object but {type(value).__name__}: {UNDERSTOOD}")
