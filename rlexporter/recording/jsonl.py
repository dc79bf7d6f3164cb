"""Parser of a file's text into JSON objects, each with its place in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlexporter.model.errors import SetupError

EXPECTED = (
    "expected are a trainer_state.json, lines such as "
    '{"step": 3, "kl": 0.02}, or {"event": "log", "global_step": 3, "time": 1.0, "logs": {...}}'
)

Line = tuple[str, dict[str, Any]]
"""An object's place in the file, for messages, and the object."""


class UnreadableError(SetupError):
    """A file that is no recorded run; the message says which, where, and what is wrong."""


def lines(path: Path) -> Iterator[Line]:
    """Yield the objects of JSON lines, or of the log history in a `trainer_state.json`. Raises UnreadableError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not text.strip():
        raise UnreadableError(f"{path}: is empty: {EXPECTED}")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _json_lines(path, text)
        return
    history = whole.get("log_history") if isinstance(whole, dict) else None
    if isinstance(history, list):
        for i, line in enumerate(history):
            yield _object(f"{path}: log_history[{i}]", line)
    elif isinstance(whole, dict) and "\n" not in text.strip():
        yield f"{path}:1", whole
    else:
        raise UnreadableError(f"{path}: is JSON, but no recorded run: {EXPECTED}")


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
            hint = f": {EXPECTED}" if first else ""
            raise UnreadableError(f"{path}:{number}: is no JSON: {error}{hint}") from None
        yield _object(f"{path}:{number}", value)
        first = False


def _object(where: str, value: object) -> Line:
    if not isinstance(value, dict):
        raise UnreadableError(f"{where}: is no JSON object but {type(value).__name__}: {EXPECTED}")
    return where, value
