"""The page of a run that is over, beside its checkpoints: written when it ends, and read when another begins there."""

from __future__ import annotations

from pathlib import Path

from rlexporter.atomic_file import write_whole
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import document, earlier
from rlexporter.status.earlier import EarlierRun
from rlexporter.status.history import History
from rlexporter.status.page import held, page

PAGE_FILE = "rlexporter.html"
"""Name of the file. It has no leading underscore: an upload of the folder to the hub takes it along."""

_MOST_BYTES = 2_000_000
"""A larger page has fewer points a curve."""
_MOST_READ = 20_000_000


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


def read(file: Path) -> EarlierRun:
    """Return the run whose page is ``file``, to compare another with. Raises SetupError if it is no page of a run."""
    try:
        if file.stat().st_size > _MOST_READ:
            raise ValueError("it is larger than 20 MB")
        return earlier.of_page(held(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror or error}") from None
    except (LookupError, TypeError, ValueError):
        raise SetupError(
            f"{file} is no page of a run; `rlexporter report LOG -o PAGE.html` makes one of a log or a recording"
        ) from None
