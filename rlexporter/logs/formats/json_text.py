"""JSON: a `trainer_state.json`, a list of log lines, or JSON lines, one object each.

Also notebooks: what the cells of an `.ipynb` have printed, and the tables of progress that transformers draws in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rlexporter.logs.dialect import STEPS, is_known, is_number
from rlexporter.logs.formats import printed
from rlexporter.logs.formats.console import Console, ending
from rlexporter.logs.source import UNDERSTOOD, InOnePiece, Line, shortened
from rlexporter.model.errors import UnreadableError

LONGEST = 8 * 1024 * 1024
"""How many characters of a line are kept; a longer one is damaged."""
_OBJECT = re.compile(r'\s*\{\s*["}]')
_MOST_NAMED = 5
WHOLE = "JSON in one piece"
_HISTORIES = ("history", "log_history", "rows", "data")
"""Where the history of one of several runs is."""
_COLUMNS = {"Step": "step", "Epoch": "epoch", "Training Loss": "loss", "Validation Loss": "eval_loss"}
"""How transformers heads the columns of its table; all others have the key as the title, as Unsloth's do."""


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
    if isinstance(whole, dict) and isinstance(whole.get("cells"), list) and "nbformat" in whole:
        return InOnePiece("a notebook", _of_cells(path, whole["cells"]))
    if histories := _histories(whole):
        lines = (
            Line(f"{path}: {name}[{i}]", row, of=name) for name, rows in histories.items() for i, row in enumerate(rows)
        )
        return InOnePiece(WHOLE, lines)
    is_line = isinstance(whole, dict) and "\n" not in text.strip()
    if isinstance(_history(whole), list) or (last and not is_line):
        return InOnePiece(WHOLE, _listed(path, text, whole))
    return None


def _histories(whole: Any) -> dict[str, list[Any]]:
    """Return the histories in ``whole`` by name: lists of log lines, or columns of numbers. One alone has no name."""
    if isinstance(whole, list):
        runs = [
            run
            for run in whole
            if isinstance(run, dict) and any(isinstance(run.get(key), (list, dict)) for key in _HISTORIES)
        ]
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


def _of_cells(path: Path, cells: list[Any]) -> Iterator[Line]:
    """Yield the log lines in a notebook, each cell a training of its own. Raises UnreadableError if there are none."""
    outputs = (cell.get("outputs") if isinstance(cell, dict) else None for cell in cells)
    lines = [line for number, each in enumerate(outputs, 1) for line in _of_cell(path, f"cell {number}", each or [])]
    if not lines:
        raise UnreadableError(
            f"{path}: is a notebook whose outputs hold no log line: save it with its outputs, or give the log of the "
            f"run, such as its trainer_state.json. {UNDERSTOOD}"
        )
    yield from lines


def _of_cell(path: Path, name: str, outputs: list[Any]) -> Iterator[Line]:
    """Yield the log lines of one cell: those it has printed, else those in its tables; and how they ended."""
    known = [output for output in outputs if isinstance(output, dict)]
    text = "".join(_text_of(output.get("text")) for output in known if output.get("output_type") == "stream")
    console = Console(path)
    lines = [*console.feed(text), *console.close()] or printed.lines_of_pairs(path, text)
    lines = lines or [line for output in known for line in _in_tables(path, output)]
    for i, line in enumerate(lines):
        yield line._replace(where=f"{path}: {name}, line {i + 1}", of=name)
    failed = next((output.get("ename") for output in known if output.get("output_type") == "error"), None)
    if lines and failed:
        yield Line(f"{path}: {name}", ending(str(failed)), of=name)


def _text_of(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")


def _in_tables(path: Path, output: dict[str, Any]) -> Iterator[Line]:
    data = output.get("data")
    tables = _Tables()
    tables.feed(_text_of(data.get("text/html")) if isinstance(data, dict) else "")
    for head, *rows in filter(None, tables.tables):
        keys = [_COLUMNS.get(title, title.replace(" / ", "/")) for title in head]
        if any(key in STEPS for key in keys) and any(is_known(key) for key in keys if key not in STEPS):
            for row in rows:
                cells = {key: cell for key, cell in zip(keys, row, strict=False) if is_number(cell.replace(",", ""))}
                yield Line(str(path), {key: cell.replace(",", "") for key, cell in cells.items()})


class _Tables(HTMLParser):
    """Collects the tables of a page: rows of cells of text, the head first."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Begin a table, a row or a cell."""
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        """Take the text of a cell."""
        if self._inside:
            self.tables[-1][-1][-1] += data.strip()
