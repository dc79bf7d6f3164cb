"""The page of a run that is over, beside its checkpoints: one file, as `rlexporter report` makes it."""

from __future__ import annotations

from pathlib import Path

from rlexporter.atomic_file import write_whole
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import document
from rlexporter.status.history import History
from rlexporter.status.page import page

PAGE_FILE = "rlexporter.html"
"""Name of the file. It has no leading underscore: an upload of the folder to the hub takes it along."""

_MOST_BYTES = 2_000_000
"""A larger page has fewer points a curve."""


def keep(folder: str, snapshot: Snapshot, history: History, now: float) -> str:
    """Write the page into ``folder``; return what to tell a person. Raises OSError if it cannot be written."""
    for points in (document.MOST_POINTS, document.POINTS, document.POINTS // 4):
        data = document.kept(snapshot, history, now, points=points)
        text = page(data)
        if len(text.encode()) < _MOST_BYTES:
            break
    file = Path(folder) / PAGE_FILE
    write_whole(file, text)
    verdict, name = data["status"]["verdict"], snapshot.labels["run"]
    return f"run {name} is over: {verdict['word']}. {verdict['text']} Its page: {file}"
