"""`rlexporter replay`: serves a recorded run again, or writes it as OpenMetrics."""

from __future__ import annotations

import argparse
import contextlib
import math
from pathlib import Path
from typing import Any

from rlexporter import recording
from rlexporter.catalog import ALGORITHMS
from rlexporter.commands import replaying
from rlexporter.outputs import state_file


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    again = commands.add_parser("replay", help="serve a recorded run as if live, or write it for promtool")
    again.add_argument("file", metavar="FILE", help="a log, as `rlexporter check --help` lists them, or a state file")
    again.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the file does not say")
    again.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="times its own pace (default: 1; 0 or max: at once)"
    )
    again.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    again.add_argument(
        "--linger",
        type=float,
        default=replaying.LINGER_SECONDS,
        metavar="SECONDS",
        help="how long the final state is served (default: %(default)g)",
    )
    again.add_argument(
        "--openmetrics",
        type=Path,
        metavar="OUT",
        help="serve nothing; write what scrapes would have given, for `promtool tsdb create-blocks-from openmetrics`",
    )
    again.add_argument(
        "--interval",
        type=float,
        default=replaying.INTERVAL_SECONDS,
        metavar="SECONDS",
        help="with --openmetrics: from one scrape to the next at least (default: %(default)g; 0: each step)",
    )
    again.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve or write the recording; return the exit status. Raises SetupError for an unusable file or address."""
    kept = state_file.read_saved_state(options.file)
    if kept and options.openmetrics is None:
        return replaying.serve_saved_state(kept, port=options.port, linger=options.linger)
    found = recording.read(options.file, options.algorithm)
    if options.openmetrics is None:
        return replaying.serve(found, speed=options.speed, port=options.port, linger=options.linger)
    scrapes = replaying.write(found, options.openmetrics, interval=options.interval)
    print(f"wrote {options.openmetrics}: {scrapes} scrapes of run {found.run}")
    print(f"promtool tsdb create-blocks-from openmetrics {options.openmetrics} DATA makes the blocks of a Prometheus")
    return 0


def _speed(text: str) -> float:
    with contextlib.suppress(ValueError):
        speed = math.inf if text == "max" else float(text)
        if speed >= 0:
            return speed or math.inf
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 0 on nor max")
