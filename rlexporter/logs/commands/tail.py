"""`rlexporter tail`: follows a log that a training writes, and serves its run live until Ctrl-C, SIGTERM or the end."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.config.arguments import Rank
from rlexporter.display import Display
from rlexporter.exporter import Exporter
from rlexporter.logs import growing
from rlexporter.logs.growing import GrowingFile, Pipe, Stream
from rlexporter.logs.playback import Follower
from rlexporter.logs.reader import Event
from rlexporter.model.errors import UnreadableError
from rlexporter.model.step import RunFacts
from rlexporter.terminal import shown

_EPILOG = """\
what is followed, told apart by what the log holds:
  JSON lines: of rlexporter's own recorder, verl's `file` logger, ms-swift (logging.jsonl), LLaMA-Factory
    (trainer_log.jsonl), or any other with a step and numbers in each line
  console output of TRL (dicts, between progress bars) and of verl, also as Slurm or nohup redirect it

A file that is replaced, cut or not there yet is followed as well; a step that goes back begins another attempt. Host,
token, TLS, thresholds, push and discovery are set by RLEXPORTER_* as for a trainer.

exit status: 0, 3 if what is there cannot be read or followed, 2 for any other mistake
"""

LINGER_SECONDS = 60.0
_POLL_SECONDS = 0.25
_SETTLED_SECONDS = 1.0
"""After so long without a log line, what waits for more is handed on."""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="a log, the folder of a run, or - for standard input")
    parser.add_argument("--run", metavar="NAME", help="name of the run (default: as the log or its folder is called)")
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the log does not say")
    parser.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    parser.add_argument(
        "--linger",
        type=float,
        metavar="SECONDS",
        help="exit this long after the run has ended (default: a file is followed on, as another attempt may append to "
        f"it; a pipe that was closed: {LINGER_SECONDS:g})",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve the run that a log tells of until it ends; return the exit status.

    Raises SetupError if the log cannot be followed, or the address is not available.
    """
    source = growing.source(options.file)
    rank = Rank(0, world_size=1)
    exporter = Exporter(run=options.run, algorithm=options.algorithm or None, rank=rank, port=options.port)
    # The environment may be that of the training: its recording, and its last state, are not ours to write over.
    exporter._run.settings = replace(exporter._run.settings, record=None, state_file="")
    try:
        tail = _Tail(source, exporter, options.algorithm)
        exporter.start()
        with _ended_by_sigterm():
            tail.work(options.linger)
    finally:
        exporter.close()
        source.close()
    return 0


class _Tail:
    """Follows one log, and shows and serves its run."""

    def __init__(self, source: GrowingFile | Pipe, exporter: Exporter, algorithm: str) -> None:
        self._source = source
        self._name = shown(source.path)
        self._exporter = exporter
        self._display = Display()
        self._stream = Stream(source.path, algorithm, self._damaged)
        self._player = Follower(exporter._run, self._stream)
        self._damage = 0
        exporter.run.prepare(RunFacts(run_name=self._stream.name, info={"torch": ""}))

    def work(self, linger: float | None) -> None:
        """Follow the log until it ends, or for ``linger`` seconds after the end of the run; None: for ever."""
        display, source = self._display, self._source
        display.watch(self._exporter)
        if isinstance(source, GrowingFile) and not source.path.exists():
            display.say(f"{self._name} is not there yet: waiting for it")
        last, lines, settled = time.monotonic(), 0, False
        while not source.ended:
            piece = source.next()
            if piece.anew:
                display.say(f"{self._name} {piece.anew}: reading that from its beginning")
                self._take(self._stream.close(begin=True))
            elif piece.content:
                self._take(self._stream.feed(piece.content))
            if self._stream.count != lines:
                last, lines, settled = time.monotonic(), self._stream.count, False
            if piece.content or piece.anew:
                continue
            quiet = time.monotonic() - last
            if quiet >= _SETTLED_SECONDS and not settled:
                self._take(self._stream.settle())
                if self._player.past:  # once nothing more is there, it is over
                    self._player.past = False
                    if self._player.lines:
                        display.say(f"read {self._player.lines} log lines of {self._name}; following it now")
                    for note in self._stream.dialect.notes:
                        display.say(f"note: {note}")
                settled = True
            self._player.look_for_an_end()
            if linger is not None and self._exporter.state.over and quiet >= linger:
                break
            time.sleep(_POLL_SECONDS)
        if source.ended:
            self._take(self._stream.close())
            self._player.end()
        self._exporter._run.note()
        display.summary()
        if source.ended:
            display.stay(LINGER_SECONDS if linger is None else linger)

    def _take(self, events: Iterable[Event]) -> None:
        self._player.follow(events, self._source.written)
        done, total = self._source.read
        if self._player.past and total - done > 0:
            self._display.reading(done, total)
        else:
            self._display.step()

    def _damaged(self, error: UnreadableError) -> None:
        """Count a line that cannot be read, and tell the first."""
        self._damage += 1
        if self._damage == 1:
            self._display.say(f"left out: {error}. Further ones are only counted (rlexporter_errors_total)")
        self._exporter._run.feed.change(lambda builder: builder.add("rlexporter_errors_total", 1, "log"))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process, but not the run: the training goes on."""

    def end(signum: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
