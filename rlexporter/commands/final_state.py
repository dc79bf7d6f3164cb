"""`rlexporter final-state`: serves what a failed rank has handed over. An exporter starts it, and nobody else."""

from __future__ import annotations

import argparse
import contextlib
import socket
import time
from pathlib import Path
from typing import Any

from rlexporter import recording
from rlexporter.commands import playback, replaying
from rlexporter.endpoint import handover
from rlexporter.exporter import Exporter, visitors
from rlexporter.model.errors import SetupError

_START_SECONDS = 10.0
"""How long the process before may take to leave the port."""
_LOOK_SECONDS = 0.1


def add_to(commands: Any) -> None:
    """Add the command to ``commands``, without a word in the help."""
    command = commands.add_parser(handover.COMMAND)
    command.add_argument("file", type=Path)
    command.add_argument("--port", type=int, required=True)
    command.add_argument("--seconds", type=float, required=True)
    command.add_argument("--scrapers", type=int, required=True)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve the state in the file, which is removed; return the exit status."""
    kept = recording.read_saved_state(options.file)
    options.file.unlink()
    if kept is None:
        return 2
    alone = {"rank": 0, "local_rank": 0, "world_size": 1}  # the environment is that of the rank
    exporter = replaying.served_alone(run=kept.snapshot.labels.get("run"), port=options.port, **alone)
    playback.restore(exporter.run, kept)
    _start(exporter)
    with handover.asked(options.port) as listening:
        asking = _wait(exporter, listening, time.monotonic() + options.seconds, options.scrapers)
        exporter.close()
        if asking is not None:
            asking.close()
    return 0


def _start(exporter: Exporter) -> None:
    """Start once the port is free. Raises SetupError if somebody else has it."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(SetupError):
            exporter.start()
            return
        time.sleep(_LOOK_SECONDS)
    exporter.start()


def _wait(exporter: Exporter, listening: socket.socket, until: float, scrapers: int) -> socket.socket | None:
    """Return the connection of who wants the port; None when all scrapers were here, or the time is over."""
    listening.settimeout(_LOOK_SECONDS)
    while time.monotonic() < until and visitors(exporter) < scrapers:
        with contextlib.suppress(TimeoutError):
            return listening.accept()[0]
    return None
