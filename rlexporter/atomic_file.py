"""Files that others read while they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def of_rank(path: str | Path, rank: int) -> Path:
    """The path for a rank: processes on one folder do not write over each other's file."""
    path = Path(path)
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def write_whole(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` in one piece: a reader sees the old file or the new one. Raises OSError.

    Nothing is left beside it where that fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
