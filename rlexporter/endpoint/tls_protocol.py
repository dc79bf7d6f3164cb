"""TLS between a connection and the protocol that is spoken on it.

asyncio's own keeps a quarter of a megabyte for each connection and, if its handshake was not finished, holds it until
a full garbage collection: strangers who only connect would cost a training hundreds of megabytes
(docs/benchmarks.md, "Strangers at TLS").
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from rlexporter.endpoint.gate import PIECE_BYTES


class TLSProtocol(asyncio.Protocol):
    """Speaks TLS as the server; ``inner`` makes the inner protocol once the handshake is done."""

    def __init__(self, context: ssl.SSLContext, inner: Callable[[], asyncio.Protocol]) -> None:
        self._context = context
        self._make_inner = inner
        self._inner: asyncio.Protocol | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inside = _Inside(transport, self._tls, self._outgoing, self._context)

    def data_received(self, data: bytes) -> None:
        """Decrypt ``data`` and pass it on."""
        self._incoming.write(data)
        try:
            if self._inner is None:
                self._tls.do_handshake()
                self._inner = self._make_inner()
                self._inner.connection_made(self._inside)
            while not self._transport.is_closing():
                piece = self._tls.read(PIECE_BYTES)
                if not piece:
                    self._inside.close()
                    break
                self._inner.data_received(piece)
        except ssl.SSLWantReadError:
            self._inside.flush()
        except ssl.SSLError:
            self._inside.flush()  # tells the other side what is wrong
            self._transport.close()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._inner is not None:
            self._inner.connection_lost(exc)


class _Inside(asyncio.Transport):
    """The transport as the inner protocol sees it."""

    def __init__(
        self, transport: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, context: ssl.SSLContext
    ) -> None:
        super().__init__({"sslcontext": context, "ssl_object": tls})
        self._transport = transport
        self._tls = tls
        self._outgoing = outgoing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return super().get_extra_info(name) or self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        while len(left) and not self._transport.is_closing():
            left = left[self._tls.write(left) :]
        self.flush()

    def flush(self) -> None:
        """Send the bytes that TLS has produced."""
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def close(self) -> None:
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # nobody waits for the other side's goodbye
                self._tls.unwrap()
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
