"""Authentication in front of the application, and TLS, from files that are read again when they change.

`/livez` is open to every connection: a probe that asks whether the process lives has no credentials.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
import re
import ssl
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlexporter.atomic_file import open_regular, read_up_to
from rlexporter.config.settings import Settings
from rlexporter.endpoint.connections import TURN
from rlexporter.model.errors import SetupError
from rlexporter.outputs.address import is_loopback

METHODS = ("GET", "HEAD")
_OPEN = "/livez"
_CHALLENGE = 'Bearer, Basic realm="any name, and the token as password", charset="UTF-8"'
_MOST_TOKEN_BYTES = 4096
_MOST_FILE_BYTES = 1_000_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of an endpoint.

    ``token`` returns the current token, which every request must bring. ``advertised``: the one name, besides those of
    a loopback address, to which an endpoint on such an address answers; None: it answers to any name.
    """

    token: Callable[[], bytes] | None
    tls: ssl.SSLContext | None
    advertised: str | None


def guards(settings: Settings, failed: Callable[[Exception], None]) -> Guards:
    """Return the guards that ``settings`` ask for.

    ``failed`` gets the error of a rotated file that cannot be used; its old content then stays valid.

    Raises:
        SetupError: a file is missing, unusable, or readable by everybody.
    """
    token = context = None
    if settings.token_file:
        path = os.path.abspath(settings.token_file)
        token = _Reread([path], lambda: _token(path), failed).get
    cert, key, client_ca = (
        path and os.path.abspath(path)
        for path in (settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    )
    if cert:
        context = _tls_context(cert, key, client_ca, failed)
    elif key or client_ca:
        raise SetupError(
            f"{key or client_ca} is of no use without a certificate (argument TLS(cert_file=...), "
            "RLEXPORTER_TLS_CERT_FILE)"
        )
    advertised = _name(settings.advertise or "") if is_loopback(settings.host) else None
    return Guards(token, context, advertised)


class Authentication:
    """ASGI application in front of another one: passes on requests that bring the token and only read.

    On a loopback address they must also ask for a name of this machine. Otherwise a web page whose own name resolves to
    127.0.0.1 (DNS rebinding) could read everything.
    """

    def __init__(self, app: ASGIApp, guards: Guards) -> None:
        self._app = app
        self._token = guards.token
        self._advertised = guards.advertised

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        lengths = headers.getlist("content-length")
        has_body = "transfer-encoding" in headers or any(length.strip("0") for length in lengths)
        brings = self._token is None or _brings(headers, self._token())
        if TURN in scope:
            await scope[TURN](brings)
        refusal = self._refusal(scope, headers, has_body, brings=brings)
        if refusal is not None:
            if has_body:
                refusal.headers["connection"] = "close"  # an unread body could not be told from the next request
            await refusal(scope, receive, send)
            return
        with contextlib.suppress(Exception):  # already reported and answered, but starlette raises it all the same
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, has_body: bool, *, brings: bool) -> Response | None:
        readable = scope["method"] in METHODS
        names = map(_name, headers.getlist("host"))
        if self._advertised is not None and not all(is_loopback(name) or name == self._advertised for name in names):
            text = "asked for under a name that is not this machine's: see RLEXPORTER_ADVERTISE\n"
            return PlainTextResponse(text, 421)
        if not brings and not (readable and scope["path"] == _OPEN):
            return PlainTextResponse("unauthorized\n", 401, {"www-authenticate": _CHALLENGE})
        if has_body:
            return PlainTextResponse("nothing here takes a body\n", 413)
        if not readable:
            return PlainTextResponse("nothing here can be written\n", 405, {"allow": ", ".join(METHODS)})
        return None


def _brings(headers: Headers, token: bytes) -> bool:
    """Tell whether ``headers`` carry the token, and no other; the time does not tell how much of it is right."""
    sent = headers.getlist("authorization")
    scheme, _, value = sent[0].encode("latin-1").partition(b" ") if len(sent) == 1 else (b"", b"", b"")
    read = _READ.get(scheme.lower())
    return read is not None and hmac.compare_digest(read(value), token)


def _name(host: str) -> str:
    """Return the host in a Host header, without its port and without brackets."""
    return re.sub(r":\d*$", "", host).strip("[]").lower()


def _password(value: bytes) -> bytes:
    """Return the password of Basic authentication, the one scheme that browsers ask for; empty if it is malformed."""
    with contextlib.suppress(binascii.Error, ValueError):
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    return b""


_READ: dict[bytes, Callable[[bytes], bytes]] = {b"bearer": bytes.strip, b"basic": _password}


def _token(path: str) -> bytes:
    token = _contents(path, "token_file", private=True).strip()
    if not token:
        raise _unusable(path, "token_file", "it is empty")
    if len(token) > _MOST_TOKEN_BYTES:
        raise _unusable(path, "token_file", f"a token has at most {_MOST_TOKEN_BYTES} characters")
    if not all(0x21 <= sign <= 0x7E for sign in token):
        raise _unusable(path, "token_file", "a token is one word of ASCII letters, digits and signs")
    return token


class _Reread(Generic[_T]):
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


def _contents(path: str, setting: str, *, private: bool = False) -> bytes:
    """Return the content of the file that ``setting`` names.

    Only its owner and group may be able to read a ``private`` file, or one with a private key.

    Raises:
        SetupError: the file cannot be used.
    """
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            text = read_up_to(file, _MOST_FILE_BYTES)
    except OSError as error:
        raise _unusable(path, setting, error.strerror or str(error)) from None
    if os.name == "posix" and mode & stat.S_IROTH and (private or _is_key(text)):
        advice = f"everybody on this machine may read it: chmod 600 {path} (Kubernetes: defaultMode: 0440)"
        raise _unusable(path, setting, advice)
    return text


def _is_key(text: bytes) -> bool:
    return b"PRIVATE KEY-----" in text


def _unusable(path: str, setting: str, reason: str) -> SetupError:
    """Return the error for the file at ``path``, which ``setting`` names."""
    argument = re.sub(r"^tls_(\w+)", r"TLS(\1=...)", setting)
    return SetupError(f"cannot use {path}: {reason} (argument {argument}, RLEXPORTER_{setting.upper()})")


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return what tells a file from another one of that name; None if there is none."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_mtime_ns, file.st_ino, file.st_size


def _tls_context(
    cert: str, key: str | None, client_ca: str | None, failed: Callable[[Exception], None]
) -> ssl.SSLContext:
    """Return a server's context that follows its files. Raises SetupError if they cannot be used.

    Without ``key`` the key is in the file of the certificate. Each handshake checks whether the files have changed;
    existing connections stay as they are.
    """
    paths = [path for path in (cert, key, client_ca) if path]
    current = _Reread(paths, lambda: _read_tls(cert, key, client_ca), failed)

    def choose(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        newest = current.get()
        if newest is not first:
            connection.context = newest

    entrance = current.get()
    entrance.sni_callback = choose  # called without a server name too
    return entrance


def _read_tls(cert: str, key: str | None, client_ca: str | None) -> ssl.SSLContext:
    key_file, key_setting = (key, "tls_key_file") if key else (cert, "tls_cert_file")
    _contents(cert, "tls_cert_file")
    if not _is_key(_contents(key_file, key_setting)):
        raise _unusable(key_file, key_setting, "there is no private key in PEM form in it")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION

    def no_passphrase() -> str:
        raise _unusable(key_file, key_setting, "it is encrypted, and nobody can be asked for its passphrase")

    try:
        made.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        reason = f"the key in {key_file} is not its own" if mismatch else "there is no certificate in PEM form in it"
        raise _unusable(cert, "tls_cert_file", reason) from None
    if client_ca:
        _contents(client_ca, "tls_client_ca_file")
        try:
            made.load_verify_locations(client_ca)
        except ssl.SSLError:
            raise _unusable(client_ca, "tls_client_ca_file", "there is no certificate in PEM form in it") from None
        made.verify_mode = ssl.CERT_REQUIRED
        # A resumed session could admit a client whose certificate is no longer accepted; only TLS 1.3 can refuse it.
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.num_tickets = 0
    return made
