"""Reads a log while it grows: bytes -> text -> lines -> events, each stage with bounded memory.

`rlexporter.recording.reader` does the same with a whole file, which shows all keys of its writer at once; here they are
learned from the first lines, and from each that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rlexporter.model.step import RunFacts
from rlexporter.recording import formats, run_facts
from rlexporter.recording.formats import Decoder, event_files
from rlexporter.recording.formats.console import Console
from rlexporter.recording.formats.json_text import WHOLE, JsonLines
from rlexporter.recording.reader import Event, Parser
from rlexporter.recording.source import InOnePiece, Line, UnreadableError

FOLLOWED = "what grows line by line is followed: JSON lines, and console output of TRL and verl"
_FIRST_LINES = 200
"""The most lines to learn from before the first one is handed on."""


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
