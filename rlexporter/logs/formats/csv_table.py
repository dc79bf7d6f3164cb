"""CSV: a table of log lines with the keys in its header, as W&B and pandas write it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from rlexporter.logs.dialect import STEPS, is_known, is_number
from rlexporter.logs.source import InOnePiece, Line, shortened
from rlexporter.model.errors import UnreadableError

_DELIMITERS = ",\t;"
_EXTREMES = ("__MIN", "__MAX")
_WANDB_STEP = {"Step": "_step"}


def table(path: Path, text: str, first: str) -> InOnePiece | None:
    """Return the rows of ``text``, or None if its ``first`` line is not the header of a table of log lines.

    Raises UnreadableError for a table of several runs, also while its lines are iterated.
    """
    for delimiter in _DELIMITERS:
        cells = _header(first.rstrip("\r"), delimiter)
        parts = [cell.rpartition(" - ") for cell in cells]  # W&B calls columns ``run - key``
        runs = list(dict.fromkeys(run for run, _, key in parts if run and key))
        if len(runs) > 1 and cells[0] in (*_WANDB_STEP, *STEPS):
            named = shortened(", ".join(runs))
            raise UnreadableError(f"{path}: holds {len(runs)} runs ({named}): export one run a file")
        # The extremes of a thinned history are left out.
        keys = ["" if key.endswith(_EXTREMES) else _WANDB_STEP.get(key, key) for _, _, key in parts]
        if len(cells) > 1 and not any(map(is_number, keys)) and any(k in STEPS or is_known(k) for k in keys):
            return InOnePiece("a table (CSV)", _rows(path, text, delimiter, keys))
    return None


def _header(line: str, delimiter: str) -> list[str]:
    """Return the cells of ``line``; empty if it is no CSV, such as a line with a progress bar."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error:
        return []


def _rows(path: Path, text: str, delimiter: str, keys: list[str]) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = ((reader.line_num, row) for row in reader if any(cell.strip() for cell in row))
    try:
        next(rows)
        for number, row in rows:
            if len(row) != len(keys):
                if next(rows, None) is None and len(row) < len(keys):
                    return  # the line that a killed process was writing
                raise UnreadableError(f"{path}:{number}: has {len(row)} cells, but the header has {len(keys)}")
            cells = zip(keys, row, strict=True)
            yield Line(f"{path}:{number}", {key: cell.strip() for key, cell in cells if key and cell.strip()})
    except csv.Error as error:
        raise UnreadableError(f"{path}:{reader.line_num}: is no CSV: {error}") from None
