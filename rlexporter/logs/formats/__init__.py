"""Formats of logs, one family a file. A format is recognized by what a file holds, not by its name.

`detect` does so for a text, whether it is a whole file or the beginning of one that grows; event files are no text. The
console comes last, since any text can be output with log lines in it. Here is also what all formats share: which file
of a folder is a log, and which bytes are a text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from io import StringIO
from itertools import islice
from pathlib import Path

from rlexporter.atomic_file import read_regular
from rlexporter.logs.formats import csv_table, event_files, json_text, printed
from rlexporter.logs.formats.console import Console, described
from rlexporter.logs.formats.event_files import PATTERN
from rlexporter.logs.formats.json_text import JsonLines
from rlexporter.logs.run_facts import LOG_FILES
from rlexporter.logs.source import UNDERSTOOD, Found, InOnePiece, Line, shortened
from rlexporter.model.errors import UnreadableError

_CHECKPOINT = "checkpoint-"
_DEPTH = 4
MOST_BYTES = 1_000_000_000
"""A log is read as a whole, which takes several times its size of memory."""

_PACKED = {
    b"\x1f\x8b": "is compressed (gzip): unpack it first",
    b"PK\x03\x04": "is an archive (zip): unpack it first",
    b":W&B": "is the file that W&B synchronizes: export the run's history as CSV, or as JSON lines",
}
_UNDECIDED = 64 * 1024
"""A text with no line end within so many characters is taken for a console's."""
_LOOKED_AT = 8192
_ENOUGH = max(map(len, _PACKED))
"""How many bytes tell what a file is."""
_CONTROL = frozenset(range(32)) - frozenset(b"\0\b\t\n\f\r\x1b")


def find(path: Path) -> Found:
    """Return the log lines in a file, or in the folder of a run. Raises UnreadableError."""
    path = log_in(path) if path.is_dir() else path
    if path.is_dir():
        return event_files.read(path)
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        # It may be a pipe, or larger than `MOST_BYTES`: one that is followed is never whole.
        hint = "" if path.is_dir() or not path.exists() else " (`rlexporter tail` follows pipes, and logs of any size)"
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}{hint}") from None
    if event_files.is_one(content):
        return event_files.read(path)
    text = Decoder(path).feed(content, last=True)
    damaged: list[UnreadableError] = []
    reader = detect(path, text, damaged.append, last=True) if text.strip() else None
    if reader is None:
        raise UnreadableError(f"{path}: is empty: {UNDERSTOOD}")
    if isinstance(reader, InOnePiece):
        return Found(path, list(reader.lines))
    lines = [*reader.feed(text), *reader.close()] or printed.lines_of_pairs(path, text)
    if reader.ending is not None and not (lines and "train_runtime" in lines[-1].logs):  # else training was over
        lines.append(Line(str(path), reader.ending))
    if not lines and isinstance(reader, Console):
        raise UnreadableError(f"{path}: has no log line in {described(text)}: {UNDERSTOOD}")
    return Found(path, lines, json_text.left_out(path, lines, damaged))


def detect(
    path: Path, text: str, damaged: Callable[[UnreadableError], None], *, last: bool
) -> JsonLines | Console | InOnePiece | None:
    """Return the reader for what begins with ``text``, which is all if it is the ``last``; None while undecided.

    ``path``: the log, for messages; ``damaged``: as `JsonLines` says.
    """
    if whole := json_text.in_one_piece(path, text, last=last):
        return whole
    begun = list(islice((line for line in StringIO(text) if line.strip() and (last or line.endswith("\n"))), 2))
    if not begun:
        drawn = "\r" in text.rstrip("\r") or "\x1b" in text
        return Console(path) if drawn or len(text) > _UNDECIDED else None
    as_lines = json_text.begin_as_lines(begun)
    if as_lines or (as_lines is None and last):
        return JsonLines(path, damaged)
    return None if as_lines is None else csv_table.table(path, text, begun[0].rstrip("\n")) or Console(path)


def log_in(folder: Path) -> Path:
    """Return the log file in ``folder``, or the folder below it that holds event files. Raises UnreadableError."""
    try:
        return _log_in(folder)
    except OSError as error:
        raise UnreadableError(f"{folder}: cannot be read: {error.strerror or error}") from None


def _log_in(folder: Path) -> Path:
    for name in LOG_FILES:
        if (folder / name).is_file():
            return folder / name
    saved = [path for path in folder.glob(f"{_CHECKPOINT}*/{LOG_FILES[0]}") if _number(path) >= 0 and path.is_file()]
    if saved:
        return max(saved, key=_number)
    with_events = _with_events(folder)
    if len(with_events) > 1:
        names = ", ".join(str(run.relative_to(folder)) for run in with_events)
        raise UnreadableError(f"{folder}: holds {len(with_events)} TensorBoard runs: name one of {shortened(names)}")
    if with_events:
        return with_events[0]
    lines = sorted(path for path in folder.glob("*.jsonl") if path.is_file())
    if len(lines) > 1:
        names = shortened(", ".join(path.name for path in lines))
        raise UnreadableError(
            f"{folder}: holds {len(lines)} files of JSON lines: name one of {names}, or {folder}/*.jsonl"
        )
    if lines:
        return lines[0]
    names = shortened(", ".join(sorted(path.name for path in folder.iterdir()))) or "nothing"
    raise UnreadableError(f"{folder}: is a folder without a log, with {names} in it: {UNDERSTOOD}")


def _number(path: Path) -> int:
    """Return the step of the checkpoint that ``path`` is in; -1 if its name has none."""
    step = path.parent.name.removeprefix(_CHECKPOINT)
    return int(step) if step.isascii() and step.isdigit() else -1


def _with_events(folder: Path) -> list[Path]:
    """Return the folders with event files that are nearest to ``folder``; hyper-parameters are written below them."""
    level = [folder]
    for _ in range(_DEPTH):
        with_events = [place for place in level if any(file.is_file() for file in place.glob(PATTERN))]
        if with_events:
            return with_events
        level = [below for place in level for below in sorted(place.iterdir()) if below.is_dir()]
    return []


class Decoder:
    """Decodes a file that comes in pieces, and replaces the broken characters that a console leaves.

    PowerShell redirects output as UTF-16, and a log that was truncated while being written begins with zeros.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._wide = False

    def feed(self, content: bytes, *, last: bool = False) -> str:
        """Return the text of the next piece; ``last``: of the end. Raises UnreadableError for what is no text."""
        if self._decoder is None:
            content = self._head + content
            if len(content) < _ENOUGH and not last:
                self._head = content
                return ""
            self._head = b""
            self._decoder = self._begun(content)
        return self._decoder.decode(content if self._wide else content.replace(b"\0", b""), last)

    def _begun(self, content: bytes) -> codecs.IncrementalDecoder:
        for magic, said in _PACKED.items():
            if content.startswith(magic):
                raise UnreadableError(f"{self._path}: {said}")
        self._wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if self._wide:
            return codecs.getincrementaldecoder("utf-16")("replace")
        head = content[:_LOOKED_AT]
        if 20 * sum(byte in _CONTROL for byte in head) > len(head):
            raise UnreadableError(f"{self._path}: is binary: {UNDERSTOOD}")
        return codecs.getincrementaldecoder("utf-8-sig")("replace")
