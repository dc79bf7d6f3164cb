"""Writes the files of this repository that derive from the catalog and the code; with `--check` it compares them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlexporter.catalog.metrics import CATALOG
from scripts import arguments, pack, reference, rooms_picture
from scripts.pack import docs

ROOT = Path(__file__).parent.parent


def files() -> dict[str, str]:
    """Return the generated texts, by path below the root of the repository."""
    return {
        "docs/metrics.md": docs.metrics(CATALOG),
        arguments.PATH: arguments.module(),
        "docs/architecture.md": rooms_picture.page((ROOT / "docs/architecture.md").read_text(encoding="utf-8")),
        "docs/images/rooms.svg": rooms_picture.picture(),
        **reference.pages(),
        **pack.files(),
    }


def stale(root: Path) -> list[str]:
    """Return the generated files that are missing or differ from the catalog."""
    return [path for path, text in files().items() if _text(root / path) != text]


def write(root: Path) -> list[str]:
    """Write stale files, and return their paths."""
    wanted = files()
    changed = [path for path, text in wanted.items() if _text(root / path) != text]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(wanted[path].encode())
    return changed


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the script for the repository at ``root`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not up to date")
    if parser.parse_args(arguments).check:
        found = stale(root)
        for path in found:
            print(f"{path} is not what the catalog says: run `make generate`", file=sys.stderr)
        return 1 if found else 0
    for path in write(root):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
