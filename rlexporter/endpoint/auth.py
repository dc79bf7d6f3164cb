"""Authentication in front of the application, from files that are read again when they change.

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
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlexporter.config.settings import Settings
from rlexporter.endpoint.credentials import Reread, contents, tls_context, unusable
from rlexporter.model.errors import SetupError
from rlexporter.outputs.discovery import is_loopback

METHODS = ("GET", "HEAD")
_OPEN = "/livez"
_CHALLENGE = 'Bearer, Basic realm="any name, and the token as password", charset="UTF-8"'
_MOST_TOKEN_BYTES = 4096


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
        token = Reread([path], lambda: _token(path), failed).get
    cert, key, client_ca = (
        path and os.path.abspath(path)
        for path in (settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    )
    if cert:
        context = tls_context(cert, key, client_ca, failed)
    elif key or client_ca:
        raise SetupError(
            f"{key or client_ca} is of no use without a certificate (argument tls_cert_file, RLEXPORTER_TLS_CERT_FILE)"
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
        """Answer one request, or pass it on."""
        headers = Headers(scope=scope)
        lengths = headers.getlist("content-length")
        has_body = "transfer-encoding" in headers or any(length.strip("0") for length in lengths)
        refusal = self._refusal(scope, headers, has_body)
        if refusal is not None:
            if has_body:
                refusal.headers["connection"] = "close"  # an unread body could not be told from the next request
            await refusal(scope, receive, send)
            return
        with contextlib.suppress(Exception):  # already reported and answered, but starlette raises it all the same
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, has_body: bool) -> Response | None:
        readable = scope["method"] in METHODS
        if self._advertised is not None and not all(map(self._is_asked, headers.getlist("host"))):
            text = "asked for under a name that is not this machine's: see RLEXPORTER_ADVERTISE\n"
            return PlainTextResponse(text, 421)
        if self._token and not (readable and scope["path"] == _OPEN) and not _brings(headers, self._token()):
            return PlainTextResponse("unauthorized\n", 401, {"www-authenticate": _CHALLENGE})
        if has_body:
            return PlainTextResponse("nothing here takes a body\n", 413)
        if not readable:
            return PlainTextResponse("nothing here can be written\n", 405, {"allow": ", ".join(METHODS)})
        return None

    def _is_asked(self, host: str) -> bool:
        name = _name(host)
        return is_loopback(name) or name == self._advertised


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
    token = contents(path, "token_file", private=True).strip()
    if not token:
        raise unusable(path, "token_file", "it is empty")
    if len(token) > _MOST_TOKEN_BYTES:
        raise unusable(path, "token_file", f"a token has at most {_MOST_TOKEN_BYTES} characters")
    if not all(0x21 <= sign <= 0x7E for sign in token):
        raise unusable(path, "token_file", "a token is one word of ASCII letters, digits and signs")
    return token
