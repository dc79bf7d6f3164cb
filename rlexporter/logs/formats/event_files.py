"""TensorBoard event files: the scalars of one run, read with the package tensorboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlexporter.logs.source import UNDERSTOOD, Found, Line
from rlexporter.model.errors import TENSORBOARD, UnreadableError, needed_by

PATTERN = "*tfevents*"
_FIRST = b"brain.Event:"
"""The first record of every event file, after the twelve bytes of its length."""


def is_one(content: bytes) -> bool:
    """Return True for the ``content`` of an event file."""
    return _FIRST in content[:64]


def read(path: Path) -> Found:
    """Return the scalars in an event file, or in all those of a folder, as the restarts of a run leave them.

    Raises UnreadableError if there are none, SetupError if the package is not installed.
    """
    files = sorted(file for file in path.glob(PATTERN) if file.is_file()) if path.is_dir() else [path]
    lines = [line for file in files for line in _lines(file)]
    if not lines:
        raise UnreadableError(f"{path}: holds TensorBoard events, but no scalars: {UNDERSTOOD}")
    return Found(path, lines)


def _lines(path: Path) -> Iterator[Line]:
    """Yield what was written in a row at the same step as one line; a tag that repeats begins another."""
    line: dict[str, Any] = {}
    for step, time, tag, value in _scalars(path):
        if line and (line["step"] != step or tag in line):
            yield Line(f"{path}: step {line['step']}", line)
            line = {}
        line |= {"step": step, "time": time, tag: value}
    if line:
        yield Line(f"{path}: step {line['step']}", line)


def _scalars(path: Path) -> Iterator[tuple[int, float, str, float]]:
    """Yield step, seconds since the epoch, tag and value.

    A record that is cut off ends the file. Raises UnreadableError for a damaged file.
    """
    with needed_by("a TensorBoard event file", TENSORBOARD):
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.util import tensor_util
    plugins: dict[str, str] = {}
    events = LegacyEventFileLoader(str(path)).Load()
    while True:
        try:
            event = next(events)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - a foreign file can be wrong in any way
            raise UnreadableError(f"{path}: is a damaged event file: {type(error).__name__}: {error}") from None
        for value in event.summary.value:
            plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if value.HasField("simple_value"):
                yield event.step, event.wall_time, value.tag, float(value.simple_value)
            elif (
                value.HasField("tensor")
                and plugin == "scalars"
                # A damaged file may claim terabytes, which would be allocated.
                and all(dim.size == 1 for dim in value.tensor.tensor_shape.dim)
            ):
                yield event.step, event.wall_time, value.tag, float(tensor_util.make_ndarray(value.tensor).item())
