"""Files that hold what guards the endpoint: checked, and read again when they change."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rlexporter.model.errors import SetupError

_MOST_BYTES = 1 << 20

_T = TypeVar("_T")


class Reread(Generic[_T]):
    """What ``read`` makes of files, made anew when one of them was changed or replaced.

    Where that fails ``failed`` hears of it, once a change, and what was made before stays. The first reading raises.
    """

    def __init__(self, paths: Sequence[str], read: Callable[[], _T], failed: Callable[[Exception], None]) -> None:
        self._paths = paths
        self._read = read
        self._failed = failed
        self._seen = self._state()
        self._value = read()

    def get(self) -> _T:
        """What the files hold now."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            try:
                self._value = self._read()
            except Exception as error:  # noqa: BLE001 - whatever it is, what was made before stays
                self._failed(error)
        return self._value

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_identity(path) for path in self._paths]


def contents(path: str, setting: str, *, private: bool = False) -> bytes:
    """What is in the file that ``setting`` names. Raises SetupError for one that cannot be used.

    ``private``: nobody but its owner and group may be able to read it. A private key always is.
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
    """Whether there is a private key in it."""
    return b"PRIVATE KEY-----" in text


def unusable(path: str, setting: str, reason: str) -> SetupError:
    """The error for a file that ``setting`` names."""
    return SetupError(f"cannot use {path}: {reason} (argument {setting}, RLEXPORTER_{setting.upper()})")


def _without_waiting(path: str, flags: int) -> int:
    """Open it; a pipe that nobody writes to would be waited for otherwise."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
