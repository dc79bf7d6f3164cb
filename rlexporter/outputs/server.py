"""HTTP: a uvicorn server on a thread of its own, that no client can hold up and that leaves no trace in a log.

The only file that imports uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlexporter.outputs.connections import KEEP_ALIVE_SECONDS, Connection, Connections, Listener, Stage
from rlexporter.outputs.door import App, Message, Receive, Scope, Send
from rlexporter.outputs.encrypted import Encrypted

_MAX_HEAD_BYTES = 16 * 1024
_PIECE_BYTES = 4 * 1024
_BACKLOG = 64
"""Connections accepted at a time: fewer than there may be, so that each gets its turn before it has to go."""

_FINISH_SECONDS = 1.0
_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cache-Control", "no-store"),
]


class Server(uvicorn.Server):
    """Serves one application on one listening socket. ``failed`` hears of errors outside of the application."""

    def __init__(
        self, app: App, listener: Listener, tls: ssl.SSLContext | None, failed: Callable[[Exception], None]
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            headers=_HEADERS,
            backlog=_BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        config.load()
        config.http_protocol_class = partial(_protocol, listener.connections, tls)  # type: ignore[assignment]
        config.loaded_app = app  # at its lowest level, a log would get every request otherwise, with its token
        super().__init__(config)
        self._listener = listener
        self._connections = listener.connections
        self._failed = failed

    def work(self) -> None:
        """Serve until `should_exit` is set: for a thread. Always on asyncio's own loop, which asks the listener."""
        loop = asyncio.SelectorEventLoop()
        loop.set_exception_handler(self._heard)
        with contextlib.closing(self._listener), contextlib.closing(loop), _unlogged():
            try:
                loop.run_until_complete(self.serve([self._listener]))
            except Exception as error:  # noqa: BLE001 - the end of the thread: it would go to the training's terminal
                self._failed(error)

    async def on_tick(self, counter: int) -> bool:
        """What is done ten times a second."""
        self._connections.sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        """Finish the answers that are under way, then end all connections."""
        for server in self.servers:
            server.close()
        for protocol in list(self.server_state.connections):
            protocol.shutdown()
        self._connections.shut(Stage.HEAD)
        await self._closed()
        self._connections.shut(*Stage)
        await self._closed()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _closed(self) -> None:
        deadline = time.monotonic() + _FINISH_SECONDS
        while len(self._connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def _heard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._failed(error if isinstance(error, Exception) else RuntimeError(context["message"]))


class _HTTP(H11Protocol):
    """HTTP on one connection, which tells how long this may stay as it is."""

    _connection: Connection

    def __init__(self, connections: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connections = connections
        self.access_log = False
        self._inner: App = self.app
        self.app = self._answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._connection = self._connections.of(transport.get_extra_info("socket").fileno())
        transport.set_write_buffer_limits(high=0)  # so that writing pauses until everything was taken
        self._connection.enter(Stage.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Nothing may keep this: it would be there until the garbage collector comes by, or the time is over.
        self._unset_keepalive_if_required()
        self.app = self._inner

    def data_received(self, data: bytes) -> None:
        if self._connection.stage is Stage.REST:
            self._connection.enter(Stage.HEAD)
        # h11 looks at the size of what is not complete yet only: in one piece a head could be of any size.
        for start in range(0, len(data), _PIECE_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _PIECE_BYTES])

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._connection.enter(Stage.REST)
        super().on_response_complete()

    def resume_writing(self) -> None:
        super().resume_writing()
        waits = self.cycle is None or self.cycle.response_complete
        self._connection.enter(Stage.REST if waits else Stage.ANSWER)

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, with the headers of any other answer."""
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            text = msg.encode() + b"\n"
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(text)),
                (b"connection", b"close"),
            ]
            lines = b"".join(b"%s: %s\r\n" % header for header in headers)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + text)
        if self.cycle is not None:
            self.cycle.disconnected = True  # an answer that is under way has nowhere to go
        self.transport.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.flow.write_paused:
            self._connection.enter(Stage.ANSWER)

        async def sending(message: Message) -> None:
            if message.get("status") == 200 and scope["path"] != "/livez":
                self._connection.useful = True
            await send(message)

        await self._inner(scope, receive, sending)


def _protocol(connections: Connections, tls: ssl.SSLContext | None, **arguments: Any) -> asyncio.Protocol:
    """What is spoken on a new connection; uvicorn asks for it as for one of its own."""
    http = partial(_HTTP, connections, **arguments)
    return http() if tls is None else Encrypted(tls, http)


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Nothing that uvicorn does on this thread is for the training's log, bad requests of strangers least of all."""
    thread = threading.get_ident()
    log = logging.getLogger("uvicorn.error")

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    log.addFilter(elsewhere)
    try:
        yield
    finally:
        log.removeFilter(elsewhere)
