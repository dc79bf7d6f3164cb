"""Things that are no regular files, made in a folder of a test: none of them is one of the machine's own."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest


def _device(path: Path, number: int) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, number))
    except PermissionError:
        pytest.skip("only root may make a device")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        folder = os.open(path.parent, os.O_RDONLY)  # a path of a socket is short
        try:
            sock.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def _link(path: Path) -> None:
    kept = path.with_name(f"kept-{path.name}")
    kept.write_text("mine")
    path.symlink_to(kept)


def _link_to_device(path: Path) -> None:
    _device(path.with_name(f"kept-{path.name}"), 5)
    path.symlink_to(path.with_name(f"kept-{path.name}"))


PLANTED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "null": ("a device", lambda path: _device(path, 3)),
    "zero": ("a device", lambda path: _device(path, 5)),
    "full": ("a device", lambda path: _device(path, 7)),
    "pipe": ("a pipe", os.mkfifo),
    "socket": ("a socket", _socket),
    "folder": ("a folder", Path.mkdir),
    "link": ("a link", _link),
    "dangling": ("a link", lambda path: path.symlink_to("nowhere")),
    "link to a device": ("a link", _link_to_device),
}
"""What may stand where we write, what we call it, and how it is made."""
UNREADABLE = {name: made for name, made in PLANTED.items() if name not in ("link", "dangling")}
"""Those that are no file to read either."""


def unchanged(path: Path) -> Callable[[], bool]:
    """Remember what is at ``path``; the result says whether it is the same thing still."""

    def look() -> tuple[object, ...]:
        found = os.lstat(path)
        behind = path.with_name(f"kept-{path.name}")
        text = behind.read_text() if behind.is_file() else ""
        return found.st_mode, found.st_ino, found.st_rdev, text

    before = look()
    return lambda: look() == before
