"""Finds the log in the folder of a run: that of a checkpoint, an output folder, or one of TensorBoard."""

from __future__ import annotations

from pathlib import Path

from rlexporter.recording.formats.event_files import PATTERN
from rlexporter.recording.run_facts import LOG_FILES
from rlexporter.recording.source import UNDERSTOOD, UnreadableError, shortened

_CHECKPOINT = "checkpoint-"
_DEPTH = 4


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
    saved = [path for path in folder.glob(f"{_CHECKPOINT}*/{LOG_FILES[0]}") if _number(path) >= 0]
    if saved:
        return max(saved, key=_number)
    with_events = _with_events(folder)
    if len(with_events) > 1:
        names = ", ".join(str(each.relative_to(folder)) for each in with_events)
        raise UnreadableError(f"{folder}: holds {len(with_events)} TensorBoard runs: name one of {shortened(names)}")
    if with_events:
        return with_events[0]
    lines = sorted(folder.glob("*.jsonl"))
    if len(lines) > 1:
        names = shortened(", ".join(path.name for path in lines))
        raise UnreadableError(
            f"{folder}: holds {len(lines)} files of JSON lines: name one of {names}, or {folder}/*.jsonl"
        )
    if lines:
        return lines[0]
    found = shortened(", ".join(sorted(path.name for path in folder.iterdir()))) or "nothing"
    raise UnreadableError(f"{folder}: is a folder without a log, with {found} in it: {UNDERSTOOD}")


def _number(path: Path) -> int:
    """Return the step of the checkpoint that ``path`` is in; -1 if its name has none."""
    step = path.parent.name.removeprefix(_CHECKPOINT)
    return int(step) if step.isascii() and step.isdigit() else -1


def _with_events(folder: Path) -> list[Path]:
    """Return the folders with event files, of those nearest to ``folder``: hyper-parameters are written below them."""
    level = [folder]
    for _ in range(_DEPTH):
        found = [each for each in level if any(file.is_file() for file in each.glob(PATTERN))]
        if found:
            return found
        level = [below for each in level for below in sorted(each.iterdir()) if below.is_dir()]
    return []
