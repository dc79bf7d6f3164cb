"""Writes files that other processes may read meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def of_rank(path: str | Path, rank: int) -> Path:
    """Return the path for ``rank``, so that processes that share a folder do not overwrite each other's file."""
    path = Path(path)
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one piece: a reader sees the old file or the new one.

    Raises: OSError; whatever ends it, the partial file is then removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.unlink(missing_ok=True)  # of a process of the same number, or a link that somebody has planted
        with partial.open("x", encoding="utf-8") as file:  # which follows none
            file.write(text)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
