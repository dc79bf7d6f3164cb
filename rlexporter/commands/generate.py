"""`rlexporter generate`: writes the files that derive from the catalogue. For maintainers, hidden from users."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rlexporter import generate


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    files = commands.add_parser("generate")
    files.add_argument("--check", action="store_true", help="write nothing; fail where one is not up to date")
    files.add_argument("--root", type=Path, default=Path(), help="root of the repository (default: here)")
    files.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Write the files, or only compare them with ``--check``; return the exit status."""
    if options.check:
        found = generate.stale(options.root)
        for path in found:
            print(f"{path} is not what the catalogue says: run `rlexporter generate`", file=sys.stderr)
        return 1 if found else 0
    for path in generate.write(options.root):
        print(f"wrote {path}")
    return 0
