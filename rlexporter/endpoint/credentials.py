"""The endpoint's token and TLS files: checked, and read again when they change."""

from __future__ import annotations

import os
import ssl
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
    if os.name == "posix" and mode & stat.S_IROTH and (private or _is_key(text)):
        advice = f"everybody on this machine may read it: chmod 600 {path} (Kubernetes: defaultMode: 0440)"
        raise unusable(path, setting, advice)
    return text


def _is_key(text: bytes) -> bool:
    """Tell whether ``text`` holds a private key."""
    return b"PRIVATE KEY-----" in text


def unusable(path: str, setting: str, reason: str) -> SetupError:
    """Return the error for the file at ``path``, which ``setting`` names."""
    return SetupError(f"cannot use {path}: {reason} (argument {setting}, RLEXPORTER_{setting.upper()})")


def _without_waiting(path: str, flags: int) -> int:
    """Open ``path`` without blocking, even if it is a pipe that nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return what tells a file from another one of that name; None if there is none."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_mtime_ns, file.st_ino, file.st_size


def tls_context(
    cert: str, key: str | None, client_ca: str | None, failed: Callable[[Exception], None]
) -> ssl.SSLContext:
    """Return a server's context that follows its files. Raises SetupError if they cannot be used.

    Without ``key`` the key is in the file of the certificate. Each handshake checks whether the files have changed;
    existing connections stay as they are.
    """
    paths = [path for path in (cert, key, client_ca) if path]
    current = Reread(paths, lambda: _read_tls(cert, key, client_ca), failed)

    def choose(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        newest = current.get()
        if newest is not first:
            connection.context = newest

    entrance = current.get()
    entrance.sni_callback = choose  # called without a server name too
    return entrance


def _read_tls(cert: str, key: str | None, client_ca: str | None) -> ssl.SSLContext:
    key_file, key_setting = (key, "tls_key_file") if key else (cert, "tls_cert_file")
    contents(cert, "tls_cert_file")
    if not _is_key(contents(key_file, key_setting)):
        raise unusable(key_file, key_setting, "there is no private key in PEM form in it")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION

    def no_passphrase() -> str:
        raise unusable(key_file, key_setting, "it is encrypted, and nobody can be asked for its passphrase")

    try:
        made.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        reason = f"the key in {key_file} is not its own" if mismatch else "there is no certificate in PEM form in it"
        raise unusable(cert, "tls_cert_file", reason) from None
    if client_ca:
        contents(client_ca, "tls_client_ca_file")
        try:
            made.load_verify_locations(client_ca)
        except ssl.SSLError:
            raise unusable(client_ca, "tls_client_ca_file", "there is no certificate in PEM form in it") from None
        made.verify_mode = ssl.CERT_REQUIRED
        # A resumed session could admit a client whose certificate is no longer accepted; only TLS 1.3 can refuse it.
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.num_tickets = 0
    return made
