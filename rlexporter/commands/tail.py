"""`rlexporter tail`: follows a log that a training writes, and serves its run live."""

from __future__ import annotations

import argparse
from typing import Any

from rlexporter.catalog import ALGORITHMS
from rlexporter.commands import tailing

_EPILOG = """\
what is followed, told apart by what the log holds:
  JSON lines: of rlexporter's own recorder, verl's `file` logger, ms-swift (logging.jsonl), LLaMA-Factory
    (trainer_log.jsonl), or any other with a step and numbers in each line
  console output of TRL (dicts, between progress bars) and of verl, also as Slurm or nohup redirect it

A file that is replaced, cut or not there yet is followed as well; a step that goes back begins another attempt. Host,
token, TLS, thresholds, push and discovery are set by RLEXPORTER_* as for a trainer.
"""


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    follows = commands.add_parser(
        "tail",
        help="follow the log of a run that is not to be touched, and serve it live",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    follows.add_argument("file", metavar="FILE", help="a log, the folder of a run, or - for standard input")
    follows.add_argument("--run", metavar="NAME", help="name of the run (default: as the log or its folder is called)")
    follows.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where the log does not say")
    follows.add_argument("--port", type=int, metavar="P", help="port to serve on (default: 9750; 0: a free one)")
    follows.add_argument(
        "--linger",
        type=float,
        metavar="SECONDS",
        help="leave so long after the run has ended (default: a file is followed on, as another attempt may append to "
        f"it; a pipe that was closed: {tailing.LINGER_SECONDS:g})",
    )
    follows.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Follow the log until the end; return the exit status. Raises SetupError for what cannot be followed or served."""
    return tailing.follow(
        options.file, run=options.run, algorithm=options.algorithm, port=options.port, linger=options.linger
    )
