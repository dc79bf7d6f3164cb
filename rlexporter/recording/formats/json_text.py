"""JSON: a `trainer_state.json`, a list of log lines, or JSON lines, one object each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from rlexporter.recording.source import UNDERSTOOD, Found, Line, UnreadableError, shortened
from rlexporter.recording.writers import STEPS

_OBJECT = re.compile(r'\s*\{\s*["}]')


def read(path: Path, text: str) -> Found | None:
    """Return the objects in ``text``, None if it is no JSON. Raises UnreadableError, also while they are iterated."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return Found(path, _json_lines(path, text)) if _begins_as_lines(text) else None
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        return Found(path, _listed(f"{path}: log_history", whole["log_history"]))
    if isinstance(whole, dict) and "\n" not in text.strip():
        return Found(path, [(f"{path}:1", whole)])
    if isinstance(whole, list) and any(isinstance(each, dict) for each in whole):
        return Found(path, _listed(f"{path}: ", whole))
    what = f"an object with {_some(whole)}" if isinstance(whole, dict) else shortened(text, 40)
    raise UnreadableError(f"{path}: is JSON, but no recorded run: {what}: {UNDERSTOOD}")


def _some(whole: dict[str, object]) -> str:
    return shortened(", ".join(whole)) or "nothing in it"


def _begins_as_lines(text: str) -> bool:
    """Return True if the text is meant as JSON lines; a program may print one object before its usual output."""
    begun = [line for line in text[:1_000_000].split("\n") if line.strip()][:2]
    if not _OBJECT.match(begun[0]):
        return False
    return len(begun) < 2 or bool(_OBJECT.match(begun[1])) or any(f'"{key}"' in begun[0] for key in (*STEPS, "event"))


def _json_lines(path: Path, text: str) -> Iterator[Line]:
    found = text.split("\n")  # not `splitlines()`: JSON allows other line ends inside a text
    first = True
    for number, line in enumerate(found, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(found) and not first:
                return  # the line that a killed process was writing
            hint = f": {UNDERSTOOD}" if first else ""
            raise UnreadableError(f"{path}:{number}: is no JSON: {error}{hint}") from None
        yield _object(f"{path}:{number}", value)
        first = False


def _listed(where: str, lines: list[object]) -> Iterator[Line]:
    for i, line in enumerate(lines):
        yield _object(f"{where}[{i}]", line)


def _object(where: str, value: object) -> Line:
    if not isinstance(value, dict):
        raise UnreadableError(f"{where}: is no JSON object but {type(value).__name__}: {UNDERSTOOD}")
    return where, value
