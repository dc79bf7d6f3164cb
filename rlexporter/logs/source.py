"""What a format hands to the reader: the lines of a log, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

UNDERSTOOD = (
    "understood are trainer_state.json, JSON lines, JSON with the histories of runs, notebooks, console output, CSV, "
    "TensorBoard event files, and a folder with one of these"
)


class Line(NamedTuple):
    """A line of a log, as an object."""

    where: str
    """Its place in the file, for messages."""
    logs: dict[str, Any]
    bar: tuple[int, int] | None = None
    """The steps done and planned on the progress bar drawn after it, if any."""
    of: str = ""
    """Which of several histories in one file it is of, by name; empty where the file does not say."""


class Found(NamedTuple):
    """The log lines of a run, as some format holds them."""

    path: Path
    """Their file, or the folder of several files of one run."""
    lines: Sequence[Line]
    notes: tuple[str, ...] = ()
    """What the reader had to assume."""


class InOnePiece(NamedTuple):
    """A text that does not grow line by line, and is read as a whole."""

    what: str
    """What to call it in a message."""
    lines: Iterable[Line]


def shortened(text: object, length: int = 60) -> str:
    """Return ``text`` on one line, cut to ``length`` characters, for a message."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"
