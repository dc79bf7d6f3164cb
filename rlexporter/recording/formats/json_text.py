"""JSON: a `trainer_state.json`, a list of log lines, or JSON lines, one object each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlexporter.recording.formats.notebook import notebook
from rlexporter.recording.source import UNDERSTOOD, InOnePiece, Line, UnreadableError, shortened
from rlexporter.recording.writers import STEPS, is_known

LONGEST = 8 * 1024 * 1024
"""How many characters of a line are kept; a longer one is damaged."""
_OBJECT = re.compile(r'\s*\{\s*["}]')
_MOST_NAMED = 5
WHOLE = "JSON in one piece"
_HISTORIES = ("history", "log_history", "rows", "data")
"""Where the history of one of several runs is."""


class JsonLines:
    """Reads JSON lines from a text that comes in pieces.

    ``damaged`` is called with the error of each line that is no JSON object; unless it raises, reading goes on.
    """

    ending = None
    """How the run ended if nothing more comes; JSON lines never say."""

    def __init__(self, path: Path, damaged: Callable[[UnreadableError], None]) -> None:
        self._path = path
        self._damaged = damaged
        self._rest = ""
        self._number = 0
        self._first = True
        self._too_long = False
        self.count = 0

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
        """Yield what waited for more text, which is nothing."""
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
            self.count += 1
            yield Line(where, value)
        else:
            self._damaged(_no_object(where, value))


def in_one_piece(path: Path, text: str, *, last: bool) -> InOnePiece | None:
    """Return the lines of a `trainer_state.json`, of a list of log lines or, if ``last``, of other JSON.

    None for any other text, and for a single log line, which others may follow. Iterating over the lines raises
    UnreadableError if they are no log lines.
    """
    try:
        whole = _loaded(text)
    except (ValueError, RecursionError):
        return None
    if (found := notebook(path, whole)) is not None:
        return found
    if histories := _histories(whole):
        return InOnePiece(WHOLE, _of_each(path, histories))
    is_line = isinstance(whole, dict) and "\n" not in text.strip()
    if isinstance(_history(whole), list) or (last and not is_line):
        return InOnePiece(WHOLE, _listed(path, text, whole))
    return None


def _histories(whole: Any) -> dict[str, list[Any]]:
    """Return the histories in ``whole`` by name: lists of log lines, or columns of numbers. One alone has no name."""
    if isinstance(whole, list):
        runs = [run for run in whole if _is_run(run)]
        names = [str(run.get("name") or run.get("id") or "run") for run in runs]
        numbered = enumerate(zip(names, runs, strict=True), 1)
        named = {f"{name} {i}" if names.count(name) > 1 else name: run for i, (name, run) in numbered}
    elif isinstance(whole, dict) and "log_history" not in whole:
        named = whole
    else:
        return {}
    found = {str(name): rows for name, value in named.items() if (rows := _rows(value))}
    if found and len(found) == len(named):
        return found
    alone = _rows(whole) if isinstance(whole, dict) else []
    return {"": alone} if alone else {}


def _is_run(run: Any) -> bool:
    return isinstance(run, dict) and any(isinstance(run.get(key), (list, dict)) for key in _HISTORIES)


def _rows(value: Any) -> list[Any]:
    """Return the log lines of one history; empty if ``value`` is none."""
    if isinstance(value, dict):
        inner = next((value[key] for key in _HISTORIES if isinstance(value.get(key), (list, dict))), None)
        if inner is not None:
            return _rows(inner)
        columns = {key: cells for key, cells in value.items() if isinstance(cells, list)}
        if columns and len(columns) == len(value) and len(set(map(len, columns.values()))) == 1:
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return []
    is_lines = isinstance(value, list) and len(value) > 1 and all(isinstance(row, dict) for row in value)
    return value if is_lines and any(is_known(key) or key in STEPS for key in value[0]) else []


def _of_each(path: Path, histories: dict[str, list[Any]]) -> Iterator[Line]:
    for name, rows in histories.items():
        for i, row in enumerate(rows):
            yield Line(f"{path}: {name}[{i}]", row, of=name)


def _history(whole: Any) -> Any:
    return whole.get("log_history") if isinstance(whole, dict) else whole


def begin_as_lines(begun: list[str]) -> bool | None:
    """Return True if ``begun``, the first one or two lines, begin JSON lines; None if one alone does not tell."""
    if not _OBJECT.match(begun[0]):
        return False
    if any(f'"{key}"' in begun[0] for key in (*STEPS, "event")):
        return True
    return None if len(begun) < 2 else bool(_OBJECT.match(begun[1]))


def left_out(path: Path, lines: Sequence[Line], damaged: Sequence[UnreadableError]) -> tuple[str, ...]:
    """Return a note on the ``damaged`` lines of a recording, such as a full disk leaves.

    Raises UnreadableError for damaged lines of any other log.
    """
    if not damaged:
        return ()
    if not any("event" in line.logs for line in lines):
        raise damaged[0]
    first, more = damaged[:_MOST_NAMED], len(damaged) - _MOST_NAMED
    named = "; ".join(str(error).removeprefix(f"{path}:") for error in first)
    what = "a damaged line" if len(damaged) == 1 else f"{len(damaged)} damaged lines"
    return (f"left out {what}: {named}" + (f"; and {more} more" if more > 0 else ""),)


def _loaded(text: str) -> Any:
    """Return the value of JSON ``text``. Raises ValueError or RecursionError for any other text."""
    try:
        return json.loads(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        return json.loads(text, parse_int=float)  # an integer of more digits than Python reads


def _listed(path: Path, text: str, whole: Any) -> Iterator[Line]:
    history, where = _history(whole), f"{path}: {'log_history' if isinstance(whole, dict) else ''}"
    if not isinstance(history, list) or (history is whole and not any(isinstance(line, dict) for line in history)):
        names = shortened(", ".join(whole)) or "nothing in it" if isinstance(whole, dict) else ""
        what = f"an object with {names}" if names else shortened(text, 40)
        raise UnreadableError(f"{path}: is JSON, but no recorded run: {what}: {UNDERSTOOD}")
    for i, line in enumerate(history):
        if not isinstance(line, dict):
            raise _no_object(f"{where}[{i}]", line)
        yield Line(f"{where}[{i}]", line)


def _no_object(where: str, value: object) -> UnreadableError:
    return UnreadableError(f"{where}: is no JSON object but {type(value).__name__}: {UNDERSTOOD}")
