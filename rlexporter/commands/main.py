"""Entry point of the command line: finds the command, runs it, and prints the errors that it raises."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module

from rlexporter.commands import COMMANDS
from rlexporter.model.errors import SetupError
from rlexporter.version import __version__

_PIPE_CLOSED = 141
"""The status of a shell's command that ends with SIGPIPE: 128 + 13."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 2 for a mistake or a missing package, 3 for an unreadable file."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    own = parser({next((word for word in words if not word.startswith("-")), "")})
    if not words:
        own.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], COMMANDS, n=1)
        said = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        own.error(f"there is no command {words[0]!r}: {said}")
    options, unknown = own.parse_known_args(words)
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
        return error.status
    except KeyboardInterrupt:
        return 130


def parser(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line. Only the modules of the ``chosen`` commands are imported."""
    whole = argparse.ArgumentParser(prog="rlexporter", description="Prometheus metrics for RL post-training.")
    whole.add_argument("--version", action="version", version=f"rlexporter {__version__}")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name in chosen:
            import_module(module).define(command)
        command.set_defaults(mistake=command.error)  # a mistake in its options is answered with its own usage
        if "\n" in (command.epilog or ""):
            command.formatter_class = argparse.RawDescriptionHelpFormatter
    return whole
