"""Notebooks: what the cells of an `.ipynb` have printed, and the tables of progress that transformers draws in them."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rlexporter.recording.formats import pairs
from rlexporter.recording.formats.console import Console, ending
from rlexporter.recording.source import UNDERSTOOD, InOnePiece, Line, UnreadableError
from rlexporter.recording.writers import STEPS, is_known, is_number

_COLUMNS = {"Step": "step", "Epoch": "epoch", "Training Loss": "loss", "Validation Loss": "eval_loss"}
"""How transformers heads the columns of its table; all others have the key as the title, as Unsloth's do."""


def notebook(path: Path, whole: Any) -> InOnePiece | None:
    """Return the log lines in a notebook, each cell a training of its own; None for any other JSON.

    Iterating over the lines raises UnreadableError if no cell holds one.
    """
    if not isinstance(whole, dict) or not isinstance(whole.get("cells"), list) or "nbformat" not in whole:
        return None
    return InOnePiece("a notebook", _lines(path, whole["cells"]))


def _lines(path: Path, cells: list[Any]) -> Iterator[Line]:
    any_line = False
    for number, cell in enumerate(cells, 1):
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for line in _of_cell(path, f"cell {number}", outputs or []):
            any_line = True
            yield line
    if not any_line:
        raise UnreadableError(
            f"{path}: is a notebook whose outputs hold no log line: save it with its outputs, or give the log of the "
            f"run, such as its trainer_state.json. {UNDERSTOOD}"
        )


def _of_cell(path: Path, name: str, outputs: list[Any]) -> Iterator[Line]:
    """Yield the log lines of one cell: those it has printed, else those in its tables; and how they ended."""
    known = [output for output in outputs if isinstance(output, dict)]
    text = "".join(_joined(output.get("text")) for output in known if output.get("output_type") == "stream")
    console = Console(path)
    lines = [*console.feed(text), *console.close()] or pairs.lines(path, text)
    lines = lines or [line for output in known for line in _in_tables(path, output)]
    for i, line in enumerate(lines):
        yield line._replace(where=f"{path}: {name}, line {i + 1}", of=name)
    failed = next((output.get("ename") for output in known if output.get("output_type") == "error"), None)
    if lines and failed:
        yield Line(f"{path}: {name}", ending(str(failed)), of=name)


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")


def _in_tables(path: Path, output: dict[str, Any]) -> Iterator[Line]:
    data = output.get("data")
    tables = _Tables()
    tables.feed(_joined(data.get("text/html")) if isinstance(data, dict) else "")
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
