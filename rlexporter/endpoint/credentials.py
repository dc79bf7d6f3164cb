"""Files with the endpoint's credentials: checked, and read again when they change."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rlexporter.model.errors import SetupError

_MOST_BYTES = 1 << 20

_T = TypeVar("_T")


class Reread(Generic[_T]):
    """The result of ``read``, which is called again when one of the files ``paths`` was changed or replaced.

    The first call, in the constructor, may raise. If a later one does, ``failed`` gets its error, once per change, and
    the old result stays.
    """

    def __init__(self, paths: Sequence[str], read: Callable[[], _T], failed: Callable[[Exception], None]) -> None:
        self._paths = paths
        self._read = read
        self._failed = failed
        self._seen = self._state()
        self._value = read()

    def get(self) -> _T:
        """Return the result for the files as they are now."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            try:
                self._value = self._read()
            except Exception as error:  # noqa: BLE001 - whatever failed, the old result stays
                self._failed(error)
        return self._value

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_identity(path) for path in self._paths]


def contents(path: str, setting: str, *, private: bool = False) -> bytes:
    """Return the content of the file that ``setting`` names.

    Only its owner and group may be able to read a ``private`` file, or one with a private key.

    Raises:
        SetupError: the file cannot be used.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise unusable(path, setting, "it is no regular file")
            text = file.read(_MOST_BYTES)
    except OSError as error:
        raise unusable(path, setting, f"{error.strerror}") from None
    if os.name == "posix" and mode & stat.S_IROTH and (private or is_key(text)):
        advice = f"everybody on this machine may read it: chmod 600 {path} (Kubernetes: defaultMode: 0440)"
        raise unusable(path, setting, advice)
    return text


def is_key(text: bytes) -> bool:
    """Tell whether ``text`` holds a private key."""
    return b"PRIVATE KEY-----" in text


def unusable(path: str, setting: str, reason: str) -> SetupError:
    """Return the error for the file at ``path``, which ``setting`` names."""
    return SetupError(f"cannot use {path}: {reason} (argument {setting}, RLEXPORTER_{setting.upper()})")


def _without_waiting(path: str, flags: int) -> int:
    """Open ``path`` without waiting, as for a pipe that nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
