"""Hands the final state of a process that must not wait over to a process of its own, which serves it on the same port.

That process leaves when its scrapers have been there, after a while, or as soon as another exporter wants the port: a
connection to its Unix socket, in a folder that belongs to the user, asks it to. Where there are no such sockets nothing
is handed over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from rlexporter.config.settings import Settings

COMMAND = "final-state"
"""The command that is started; it is not for users."""
_OWN = "RLEXPORTER_"
_KEPT = (
    *("host", "token_file", "tls_cert_file", "tls_key_file", "tls_client_ca_file"),
    *("discovery_dir", "advertise", "labels"),
)
"""The settings that the other process needs: how the endpoint is reached."""
_PATIENCE = 3.0
"""The most seconds that an exporter waits for a port that it has asked for."""


def hand_over(settings: Settings, port: int, state: str, *, seconds: float, scrapers: int) -> None:
    """Start a process that serves ``state``, in the form of a state file, on ``port``; nobody waits for it.

    It stays for ``seconds`` at most, and until so many ``scrapers`` have fetched it. Raises OSError, and AttributeError
    on a system without Unix sockets.
    """
    file = _folder() / f"{port}-{os.getpid()}.json"
    file.write_text(state, encoding="utf-8")
    package = str(Path(__file__).parents[2])
    own = {each.metadata["env"]: _text(getattr(settings, each.name)) for each in fields(Settings) if each.name in _KEPT}
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    environ |= {name: value for name, value in own.items() if value}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    asked = (f"--port={port}", f"--seconds={seconds:.1f}", f"--scrapers={scrapers}")
    # In a session of its own, since launchers end those of ours; with no file of ours, which others read to its end.
    started = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "rlexporter", COMMAND, str(file), *asked],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    started.returncode = 0  # it is not waited for, which needs no warning


def dismiss(port: int) -> None:
    """Ask the process that was handed ``port``, if there is one, to leave, and wait a moment until it has."""
    with contextlib.suppress(OSError, AttributeError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_PATIENCE)
        asking.connect(str(_address(port)))
        asking.recv(1)  # nothing is sent: it ends when the other side is gone


@contextlib.contextmanager
def asked(port: int) -> Iterator[socket.socket]:
    """Return a socket that `dismiss` connects to; who accepts a connection keeps it until the port is free.

    Raises OSError.
    """
    path = _address(port)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


def _address(port: int) -> Path:
    return _folder() / f"{port}.sock"


def _folder() -> Path:
    """Return a folder that is this user's alone. Raises PermissionError if somebody else made it."""
    found = Path(tempfile.gettempdir()) / f"rlexporter-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    if found.is_symlink() or found.stat().st_uid != os.getuid():
        raise PermissionError(f"{found} belongs to somebody else")
    return found


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return "" if value is None else str(value)
