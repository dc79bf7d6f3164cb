"""What a format hands to the reader: the log lines of a file, each with its place; and the error for all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlexporter.model.errors import SetupError

UNDERSTOOD = (
    "understood are trainer_state.json, JSON lines, console output of TRL and verl, CSV, TensorBoard event files, "
    "and a folder with one of these"
)


class Line(NamedTuple):
    """An object of a log."""

    where: str
    """Its place in the file, for messages."""
    logs: dict[str, Any]
    bar: tuple[int, int] | None = None
    """The steps done and planned on the progress bar that was drawn after it; None if there was none."""


class Found(NamedTuple):
    """The log lines of a run, as some format holds them."""

    path: Path
    """The file that they were found in, or the folder of several files of one run."""
    lines: Sequence[Line]
    notes: tuple[str, ...] = ()
    """What the reader had to assume."""


class InOnePiece(NamedTuple):
    """A text that is read as a whole, and does not grow line by line."""

    what: str
    """How it is called where a log is followed."""
    lines: Iterable[Line]


class UnreadableError(SetupError):
    """A file that is no recorded run; the message is one line that says which, where, and what is wrong."""


def shortened(text: object, length: int = 60) -> str:
    """Return ``text`` on one line, cut to ``length`` characters, for a message."""
    line = " ".join("".join(each if each.isprintable() else " " for each in str(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"
