"""`rlexporter notify --test`: sends a message to each address of RLEXPORTER_NOTIFY. Needs apprise."""

from __future__ import annotations

import argparse
from typing import Any

from rlexporter.config.settings import Settings
from rlexporter.model.errors import NOTIFY, SetupError, needed_by


def add_to(commands: Any) -> None:
    """Add the command to ``commands``."""
    command = commands.add_parser("notify", help="send a message to try RLEXPORTER_NOTIFY")
    command.add_argument("--test", action="store_true", required=True, help="send one to each address")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Send the messages and say who took one; return 1 if one of them did not. Raises SetupError."""
    addresses = Settings.load({}).notify
    if not addresses:
        raise SetupError("RLEXPORTER_NOTIFY is not set: export RLEXPORTER_NOTIFY='discord://ID/TOKEN', for example")
    with needed_by("sending messages", NOTIFY):
        from rlexporter.outputs import services

    taken = []
    for kind, took in services.trial(addresses):
        print(f"{kind}: {'sent' if took else 'not taken; is the address right, and can it be reached from here?'}")
        taken.append(took)
    return 0 if all(taken) else 1
