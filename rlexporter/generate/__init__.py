"""Catalogue -> committed files. Each generator is a pure function from the catalogue to a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlexporter.catalog import CATALOG
from rlexporter.generate import docs
from rlexporter.model import Metric

FILES: dict[str, Callable[[Sequence[Metric]], str]] = {
    "docs/metrics.md": docs.metrics,
}
"""What is generated, by path below the root of the repository."""


def stale(root: Path) -> list[str]:
    """The generated files that are missing, or differ from what the catalogue says."""
    return [path for path, render in FILES.items() if _text(root / path) != render(CATALOG)]


def write(root: Path) -> list[str]:
    """Write the files that are stale; their paths."""
    changed = stale(root)
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(FILES[path](CATALOG).encode())
    return changed


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
