"""Reads the bytes of a log as they arrive: from a file that grows, is replaced or begins anew, or from a pipe."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from rlexporter.model.errors import SetupError
from rlexporter.recording import run_facts
from rlexporter.recording.formats import log_in

_PIECE = 256 * 1024
_MARK = 64
"""How many bytes before the position of reading tell whether a file is still the one that was read."""


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
            raise SetupError(f"{self.path}: cannot be read any more: {error.strerror or error}") from None

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
                raise SetupError(f"{self.path}: is a folder: name the log in it")
            return self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SetupError(f"{self.path}: cannot be read: {error.strerror or error}") from None

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
            now, open_one = self.path.stat(), os.fstat(file.fileno())
            return (now.st_dev, now.st_ino) != (open_one.st_dev, open_one.st_ino)
        return False


class Pipe:
    """What another program writes: standard input, or a named pipe that is open as ``fileno``."""

    def __init__(self, fileno: int) -> None:
        self.ended = False
        """True once nothing more can come."""
        self._fileno = fileno
        self._time = time.time()

    @property
    def written(self) -> float:
        """Return when something last arrived, in seconds since the epoch."""
        return self._time

    @property
    def read(self) -> tuple[int, int]:
        """Return zeros: nobody knows how much there is."""
        return 0, 0

    def next(self) -> Piece:
        """Return what has arrived."""
        if self.ended or not select.select([self._fileno], [], [], 0)[0]:
            return Piece()
        content = os.read(self._fileno, _PIECE)
        self.ended, self._time = not content, time.time()
        return Piece(content)

    def close(self) -> None:
        """Leave it open: it belongs to the process."""


def source(name: str) -> GrowingFile | Pipe:
    """Return the source called ``name``: ``-`` is standard input, and a folder is searched for its log.

    Waits until somebody writes to a named pipe. Raises SetupError for what cannot be followed.
    """
    if name == "-":
        return Pipe(0)
    path = Path(name)
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return Pipe(os.open(path, os.O_RDONLY))
    except OSError as error:
        raise SetupError(f"{name}: cannot be read: {error.strerror or error}") from None
    if stat.S_ISDIR(mode):
        growing = [path / log for log in run_facts.LOG_FILES[1:] if (path / log).is_file()]
        return GrowingFile(growing[0] if growing else log_in(path))
    return GrowingFile(path)
