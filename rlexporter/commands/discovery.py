"""`rlexporter discovery prune`: removes the target files that killed processes left behind."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlexporter.model.errors import SetupError
from rlexporter.outputs import discovery


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command and its one action."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    pruned = actions.add_parser("prune", help="remove target files that nobody has made fresh for a while")
    pruned.add_argument("folder", type=Path, metavar="FOLDER", help="RLEXPORTER_DISCOVERY_DIR of the exporters")
    pruned.add_argument(
        "--older-than",
        type=_age,
        default="15m",
        metavar="AGE",
        help="90s, 15m, 2h or 1d (default: 15m; an exporter that lives makes its file fresh every minute)",
    )
    pruned.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    pruned.set_defaults(command=run, mistake=pruned.error)


def run(options: argparse.Namespace) -> int:
    """Remove old target files. Raises SetupError if the folder is not readable or writable."""
    try:
        paths = list(discovery.left_over(options.folder, options.older_than))
        for path in paths:
            if not options.dry_run:
                path.unlink(missing_ok=True)
            print(f"{'would remove' if options.dry_run else 'removed'} {path}")
    except OSError as error:
        raise SetupError(f"cannot prune {error.filename or options.folder}: {error.strerror}") from None
    print(f"{len(paths)} left over in {options.folder}")
    return 0


def _age(text: str) -> float:
    """Return an age in seconds. Raises argparse.ArgumentTypeError."""
    number, unit = text[:-1], {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    if not number.isdigit() or not unit:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: 90s, 15m, 2h or 1d")
    return float(number) * unit
