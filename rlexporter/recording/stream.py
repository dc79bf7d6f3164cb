"""Reads a log while it grows: bytes -> text -> lines -> events, each stage with bounded memory.

It is what `rlexporter.recording.reader` does with a whole file. A file tells at once which keys its writer has; here
that is learned from the lines that are there at first, and from each that comes.
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
from rlexporter.recording.writers import Dialect

FOLLOWED = "what grows line by line is followed: JSON lines, and console output of TRL and verl"
_FIRST_LINES = 200
"""The lines to learn from, at most, before the first one is handed on."""


class Stream:
    """The events of a growing log. Everything that is yielded has to be taken before the next call.

    ``path``: how the log is called in messages; ``algorithm``: that of the run, if the log does not name it.
    ``damaged``: called with what is wrong with a line; that line is left out.
    """

    def __init__(self, path: Path, algorithm: str, damaged: Callable[[UnreadableError], None]) -> None:
        self._path = path
        self._damaged = damaged
        self._dialect = Dialect()
        self._parser = Parser(algorithm)
        self._first: list[Line] | None = []
        """The lines that are learned from before the first one is handed on; None once that is over."""
        self._open()

    @property
    def name(self) -> str:
        """Return the name of the run, as `rlexporter check` would."""
        return run_facts.name(self._parser.meta, self._path)

    @property
    def facts(self) -> RunFacts:
        """Return the facts of the run that began last, as far as they are known."""
        return replace(self._parser.facts(self._dialect, newest=True), run_name=self.name)

    @property
    def known(self) -> object:
        """Return something that differs if the facts may."""
        return self._parser.known, self._dialect.algorithm, self._dialect.planned

    @property
    def planned(self) -> int | None:
        """Return the steps that are planned; None while that is unknown."""
        return self._dialect.planned

    @property
    def interval(self) -> int:
        """Return the steps from one log line to the next."""
        return self._parser.interval()

    @property
    def recorded(self) -> bool:
        """Return True for a recording of rlexporter's own, which says itself how its run began and ended."""
        return self._parser.watched

    @property
    def found(self) -> int:
        """Return how many log lines the file that is read has had, also those that wait for more."""
        return self._reader.found if self._reader else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what has to be assumed."""
        return self._dialect.notes

    @property
    def ending(self) -> Event | None:
        """Return the event by which the run ended, if nothing more comes; None if nothing says that it ended."""
        found = self._reader.ending if self._reader else None
        return next(Parser().feed(Line(str(self._path), found)), None) if found else None

    def feed(self, content: bytes) -> Iterator[Event]:
        """Yield the events that are whole with the next piece of the log.

        Raises UnreadableError if this is no log, or one of a kind that cannot be followed.
        """
        if self._reader is None and event_files.is_one(content):
            raise UnreadableError(f"{self._path}: is a TensorBoard event file, which is not followed: {FOLLOWED}")
        yield from self._read(self._decoder.feed(content))

    def settle(self) -> Iterator[Event]:
        """Yield what waited for more: nothing came for a while."""
        if self._reader is not None:
            yield from self._take(self._reader.settle())
        if self._first:
            yield from self._begin()
        yield from self._parser.settle()

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
            found = formats.detect(self._path, text, self._damaged, last=last)
            if self._path.name == run_facts.LOG_FILES[0]:
                found = InOnePiece(WHOLE, ())  # half of one is no JSON yet
            if isinstance(found, InOnePiece):
                raise UnreadableError(f"{self._path}: is {found.what}, which is not followed: {FOLLOWED}")
            if found is None:
                return
            self._reader, self._head = found, ""
        yield from self._take(self._reader.feed(text))

    def _take(self, lines: Iterable[Line]) -> Iterator[Event]:
        for line in lines:
            if self._first is None:
                self._dialect.learn((line,))
                yield from self._events(line)
            else:
                self._first.append(line)
                if len(self._first) >= _FIRST_LINES:
                    yield from self._begin()

    def _begin(self) -> Iterator[Event]:
        first, self._first = self._first or [], None
        self._dialect.learn(first)
        for line in first:
            yield from self._events(line)

    def _events(self, line: Line) -> Iterator[Event]:
        for each in self._dialect.lines(line):
            yield from self._parsed(each)

    def _parsed(self, line: Line) -> Iterator[Event]:
        try:
            yield from self._parser.feed(line)
        except UnreadableError as error:
            self._damaged(error)
