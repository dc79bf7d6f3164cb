"""Follows a log while it grows: bytes -> text -> lines -> events, each stage with bounded memory.

The bytes come from a file, which may be replaced or begin anew, or from a pipe. `rlexporter.logs.reader` makes the
same events of a whole file, which shows all keys of its writer at once; here they are learned from the first lines, and
from each that follows.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from rlexporter.atomic_file import open_regular
from rlexporter.logs import formats, run_facts
from rlexporter.logs.formats import Decoder, event_files
from rlexporter.logs.formats.console import Console
from rlexporter.logs.formats.json_text import WHOLE, JsonLines
from rlexporter.logs.reader import Event, Parser
from rlexporter.logs.source import InOnePiece, Line
from rlexporter.model.errors import UnreadableError
from rlexporter.model.step import RunFacts

_PIECE = 256 * 1024
_MARK = 64
"""How many bytes before the position of reading tell whether a file is still the one that was read."""
FOLLOWED = "what grows line by line is followed: JSON lines, and console output of TRL and verl"
_FIRST_LINES = 200
"""The most lines to learn from before the first one is handed on."""


class Piece(NamedTuple):
    """What has arrived since the last call; empty if nothing has."""

    content: bytes = b""
    anew: str = ""
    """Why the log begins anew with what follows; empty if it goes on."""


class GrowingFile:
    """A file at ``path``, which need not exist yet.

    A file that replaces it is read once the old one is at its end. A file that became shorter, or whose bytes before
    the position of reading have changed, is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended = False
        """True once nothing more can come."""
        self._file: FileIO | None = None
        self._at = 0
        self._mark = b""

    @property
    def written(self) -> float:
        """Return when the file was last written, in seconds since the epoch."""
        return os.fstat(self._file.fileno()).st_mtime if self._file else time.time()

    @property
    def read(self) -> tuple[int, int]:
        """Return how many bytes of the file were read, and how many it has."""
        return (self._at, os.fstat(self._file.fileno()).st_size) if self._file else (0, 0)

    def next(self) -> Piece:
        """Return what has been written since the last call, at most 256 KiB of it."""
        if self._file is None:
            self._file = self._opened()
        try:
            return Piece() if self._file is None else self._next(self._file)
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read any more: {error.strerror or error}") from None

    def _next(self, file: FileIO) -> Piece:
        if self._is_other(file):
            file.seek(0)
            self._at, self._mark = 0, b""
            return Piece(anew="was cut or written over")
        content = file.read(_PIECE)
        if content:
            self._at += len(content)
            self._mark = (self._mark + content)[-_MARK:]
            return Piece(content)
        if self._is_replaced(file) and (newer := self._opened()) is not None:
            file.close()
            self._file, self._at, self._mark = newer, 0, b""
            return Piece(anew="was replaced by another file")
        return Piece()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _opened(self) -> FileIO | None:
        try:
            if self.path.is_dir():
                raise UnreadableError(f"{self.path}: is a folder: name the log in it")
            return open_regular(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read: {error.strerror or error}") from None

    def _is_other(self, file: FileIO) -> bool:
        """Return True if the open file no longer holds what was read of it."""
        if not self._at:
            return False
        if os.fstat(file.fileno()).st_size < self._at:
            return True
        file.seek(self._at - len(self._mark))
        mark = file.read(len(self._mark))
        file.seek(self._at)
        return mark != self._mark

    def _is_replaced(self, file: FileIO) -> bool:
        """Return True if the path names another file than the open one. One that was only removed may still grow."""
        with contextlib.suppress(OSError):
            return not os.path.samestat(self.path.stat(), os.fstat(file.fileno()))
        return False


class Pipe:
    """What another program writes: standard input, or a named pipe, open as ``fileno``. Messages call it ``path``."""

    read = (0, 0)
    """Zeros, as in a `GrowingFile` that has nothing yet: nobody knows how much there is."""

    def __init__(self, path: Path, fileno: int) -> None:
        self.path = path
        self.ended = False
        """True once nothing more can come."""
        self.written = time.time()
        """When something last arrived, in seconds since the epoch."""
        self._fileno = fileno

    def next(self) -> Piece:
        """Return what has arrived."""
        if self.ended or not select.select([self._fileno], [], [], 0)[0]:
            return Piece()
        content = os.read(self._fileno, _PIECE)
        self.ended, self.written = not content, time.time()
        return Piece(content)

    def close(self) -> None:
        """Leave it open: it belongs to the process."""


def source(name: str) -> GrowingFile | Pipe:
    """Return the source called ``name``: ``-`` is standard input, and a folder is searched for its log.

    Waits until somebody writes to a named pipe. Raises UnreadableError for what cannot be followed.
    """
    if name == "-":
        return Pipe(Path("stdin"), 0)
    path = Path(name)
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return Pipe(path, os.open(path, os.O_RDONLY))
    except OSError as error:
        raise UnreadableError(f"{name}: cannot be read: {error.strerror or error}") from None
    if stat.S_ISDIR(mode):
        growing = [path / log for log in run_facts.LOG_FILES[1:] if (path / log).is_file()]
        return GrowingFile(growing[0] if growing else formats.log_in(path))
    return GrowingFile(path)


class Stream(Parser):
    """The events of a growing log. Take all events that a call yields before the next call.

    ``path``: how messages call the log; ``algorithm``: of the run, if the log does not name it.
    ``damaged``: is called with the error of each line that cannot be read; the line is left out.
    """

    def __init__(self, path: Path, algorithm: str, damaged: Callable[[UnreadableError], None]) -> None:
        super().__init__(algorithm)
        self._path = path
        self._damaged = damaged
        self._first: list[Line] | None = []
        """The lines to learn from before the first one is handed on; None once that is over."""
        self._open()

    @property
    def name(self) -> str:
        """Return the name of the run, as `rlexporter check` would."""
        return run_facts.name(self.meta, self._path)

    @property
    def facts(self) -> RunFacts:
        """Return the facts of the run that began last, as far as they are known."""
        return replace(self.facts_so_far(newest=True), run_name=self.name)

    @property
    def count(self) -> int:
        """Return how many log lines the current file has had, including those that wait for more."""
        return self._reader.count if self._reader else 0

    @property
    def ending(self) -> Event | None:
        """Return the event by which the run ended if nothing more comes; None if nothing says that it ended."""
        ending = self._reader.ending if self._reader else None
        return next(Parser().events(Line(str(self._path), ending)), None) if ending else None

    def feed(self, content: bytes) -> Iterator[Event]:
        """Yield the events that are complete with the next piece of the log.

        Raises UnreadableError if this is no log, or one that cannot be followed.
        """
        if self._reader is None and event_files.is_one(content):
            raise UnreadableError(f"{self._path}: is a TensorBoard event file, which is not followed: {FOLLOWED}")
        yield from self._read(self._decoder.feed(content))

    def settle(self) -> Iterator[Event]:
        """Yield what waited for more, after a while in which nothing came."""
        if self._reader is not None:
            yield from self._take(self._reader.settle())
        if self._first:
            yield from self._begin()
        yield from super().settle()

    def close(self, *, begin: bool = False) -> Iterator[Event]:
        """Yield what is left at the end of the log, except how the run ended. ``begin``: another file follows."""
        yield from self._read(self._decoder.feed(b"", last=True), last=True)
        if self._reader is not None:
            yield from self._take(self._reader.close())
        yield from self.settle()
        if begin:
            self._open()

    def _open(self) -> None:
        self._decoder = Decoder(self._path)
        self._reader: Console | JsonLines | None = None
        self._head = ""

    def _read(self, text: str, *, last: bool = False) -> Iterator[Event]:
        if self._reader is None:
            text = self._head = self._head + text
            if not text.strip():
                return
            reader = formats.detect(self._path, text, self._damaged, last=last)
            if self._path.name == run_facts.LOG_FILES[0]:
                reader = InOnePiece(WHOLE, ())  # half of one is no JSON yet
            if isinstance(reader, InOnePiece):
                raise UnreadableError(f"{self._path}: is {reader.what}, which is not followed: {FOLLOWED}")
            if reader is None:
                return
            self._reader, self._head = reader, ""
        yield from self._take(self._reader.feed(text))

    def _take(self, lines: Iterable[Line]) -> Iterator[Event]:
        for line in lines:
            if self._first is None:
                self.dialect.learn((line,))
                yield from self.events(line)
            else:
                self._first.append(line)
                if len(self._first) >= _FIRST_LINES:
                    yield from self._begin()

    def _begin(self) -> Iterator[Event]:
        first, self._first = self._first or [], None
        self.dialect.learn(first)
        for line in first:
            yield from self.events(line)

    def _merged(self, line: Line) -> Iterator[Event]:
        try:
            yield from super()._merged(line)
        except UnreadableError as error:
            self._damaged(error)
