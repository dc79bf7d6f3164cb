"""Formats of logs, one family a file. Each is recognised by what a file holds, not by how it is called.

A family's ``read`` returns the lines of a file, or None if the file is of another family. `console` comes last: any
text can be somebody's output, and log lines are searched in it.
"""

from __future__ import annotations

from pathlib import Path

from rlexporter.recording.formats import console, csv_table, event_files, folder, json_text
from rlexporter.recording.formats.text import decoded
from rlexporter.recording.source import Found, UnreadableError


def find(path: Path) -> Found:
    """Return the log lines in a file, or in the folder of a run. Raises UnreadableError."""
    path = folder.log_in(path) if path.is_dir() else path
    if path.is_dir():
        return event_files.read(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from None
    if event_files.is_one(content):
        return event_files.read(path)
    text = decoded(path, content)
    return json_text.read(path, text) or csv_table.read(path, text) or console.read(path, text)
