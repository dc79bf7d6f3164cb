"""Entry point of the command line: runs a command, and prints the errors that it raises."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rlexporter.commands import (
    check,
    discovery,
    generate,
    metrics,
    replay,
    report,
    run,
    status,
    tail,
    top,
    try_demo,
)
from rlexporter.model.errors import SetupError
from rlexporter.version import __version__

_PIPE_CLOSED = 141
"""The status of a shell's command that ends with SIGPIPE: 128 + 13."""
_COMMANDS = (try_demo, run, status, top, metrics, check, report, replay, tail, generate, discovery)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 2 if something has to be set up first."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options, unknown = _parser().parse_known_args(words)
    if unknown:
        options.mistake(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        status = int(options.command(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # `| head` has read enough. What is left in the buffer must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except SetupError as error:
        print(f"rlexporter: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rlexporter", description="Prometheus metrics for RL post-training.")
    parser.add_argument("--version", action="version", version=f"rlexporter {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_to(commands)
    for each in commands.choices.values():  # a mistake in its options is answered with its own usage
        each.set_defaults(mistake=each.error)
    return parser
