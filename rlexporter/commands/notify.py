"""`rlexporter notify --test`: sends a message to each address of RLEXPORTER_NOTIFY, to try it."""

from __future__ import annotations

import argparse

from rlexporter.config.settings import Settings
from rlexporter.model.errors import SetupError


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.add_argument("--test", action="store_true", required=True, help="send one to each address")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Send a message to each address and say who took one; return 1 if one of them did not. Raises SetupError."""
    from rlexporter.outputs import services

    addresses = Settings.load({}).notify
    if not addresses:
        raise SetupError("RLEXPORTER_NOTIFY is not set: export RLEXPORTER_NOTIFY='discord://ID/TOKEN', for example")
    taken = []
    for kind, took in services.trial(addresses):
        print(f"{kind}: {'sent' if took else 'not taken; is the address right, and can it be reached from here?'}")
        taken.append(took)
    return 0 if all(taken) else 1
