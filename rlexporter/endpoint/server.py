"""HTTP server: uvicorn on a thread of its own, which no client can block and which logs nothing.

The only file that imports uvicorn and h11, of which it uses only what they document: everything else is done around
them, by an event loop and a protocol below and an ASGI application above.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlexporter.endpoint.connections import KEEP_ALIVE_SECONDS, ONCE_TAKEN, Connections, Listener, Stage
from rlexporter.endpoint.tls_protocol import TLSProtocol
from rlexporter.outputs.periodic import unlogged
from rlexporter.status.page import POLICY

_MAX_HEAD_BYTES = 16 * 1024
_PIECE_BYTES = 4 * 1024
_BACKLOG = 64
"""Connections accepted at a time: fewer than the limit, so that each gets its turn before it may be shut."""

_SWEEP_SECONDS = 0.1
_BEAT_SECONDS = 0.25
"""Timers go off together, at multiples of this: uvicorn's own and ours would wake the thread twenty times a second."""
_SOON_SECONDS = 0.05
"""Shorter timers keep their time: something waits for them."""
_FINISH_SECONDS = 1
_SHARE, _BURST_SECONDS, _LONGEST_REST_SECONDS = 0.1, 2.0, 0.1
"""The share of a core that requests may use on average, the seconds that they may use at once, the longest sleep."""
_LOGGERS = ("uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")
_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", POLICY),
    ("Cache-Control", "no-store"),
]


class HTTPServer:
    """Serves one application on one listening socket. ``failed`` gets errors from outside the application."""

    def __init__(
        self, app: ASGIApp, listener: Listener, tls: ssl.SSLContext | None, failed: Callable[[Exception], None]
    ) -> None:
        self._listener = listener
        self._connections = listener.connections
        self._tls = tls
        self._failed = failed
        self._pace = Pace()
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                _Answers(app, listener.connections, self._pace),
                http="h11",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                proxy_headers=False,
                server_header=False,
                headers=_HEADERS,
                backlog=_BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_FINISH_SECONDS,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            )
        )

    @property
    def started(self) -> bool:
        return self._uvicorn.started

    def stop(self) -> None:
        """Ask `work` to finish the current answers and return. Safe on any thread."""
        self._uvicorn.should_exit = True

    def work(self) -> None:
        """Serve until `stop`. Not for the main thread, where uvicorn would take over the signals."""
        self._pace.begin()
        loop = _Loop(self._connections, self._tls, self._pace)
        loop.set_exception_handler(self._heard)
        with contextlib.closing(self._listener), contextlib.closing(loop), unlogged(_LOGGERS):
            try:
                loop.run_until_complete(self._serve())
            except Exception as error:  # noqa: BLE001 - the thread's end: a traceback would go to the terminal
                self._failed(error)

    async def _serve(self) -> None:
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._uvicorn.serve([self._listener])
        finally:
            sweeping.cancel()
            self._connections.shut(*Stage)
            deadline = time.monotonic() + _FINISH_SECONDS
            while len(self._connections) and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _sweep(self) -> None:
        """Shut connections whose time is over; at the end those that still send, and a second later all others."""
        while not self._uvicorn.should_exit:
            self._connections.sweep()
            await asyncio.sleep(_SWEEP_SECONDS)
        self._connections.shut(Stage.HEAD)
        await asyncio.sleep(_FINISH_SECONDS)
        self._connections.shut(*Stage)

    def _heard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._failed(error if isinstance(error, Exception) else RuntimeError(context["message"]))


class _Loop(asyncio.SelectorEventLoop):
    """Event loop whose servers watch and encrypt their connections; asyncio's own, since it calls the listener."""

    def __init__(self, connections: Connections, tls: ssl.SSLContext | None, pace: Pace) -> None:
        super().__init__()
        self._connections = connections
        self._tls = tls
        self._pace = pace

    def call_at(  # type: ignore[override] # Python 3.10 has no syntax for the types of asyncio's stubs
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call ``callback`` at ``when``, or a little later, together with others: each waking costs the training."""
        if when - self.time() > _SOON_SECONDS:
            when = math.ceil(when / _BEAT_SECONDS) * _BEAT_SECONDS
        return super().call_at(when, callback, *args, context=context)

    async def create_server(
        self, protocol_factory: Callable[[], Any], *arguments: Any, **options: Any
    ) -> asyncio.Server:
        """Create uvicorn's server, with our protocols between its own and the socket."""

        def watched() -> asyncio.Protocol:
            return _Watched(self._connections, protocol_factory(), self._pace)

        def connected() -> asyncio.Protocol:
            self._pace.keep()
            return TLSProtocol(self._tls, watched) if self._tls else watched()

        return await super().create_server(connected, *arguments, **options)


class Pace:
    """Keeps a thread to a share of a core, however much is asked of it: training needs the rest, and the GIL.

    Requests beyond the share wait a little; a short burst is answered at once.
    """

    def begin(self) -> None:
        """Begin to count. Call it on the thread to keep."""
        self._left, self._at, self._used = _BURST_SECONDS, time.monotonic(), time.thread_time()

    def keep(self) -> None:
        """Sleep if the thread has used more than its share. Call it before each piece of work."""
        now, used = time.monotonic(), time.thread_time()
        self._left = min(_BURST_SECONDS, self._left + _SHARE * (now - self._at)) - (used - self._used)
        self._at, self._used = now, used
        if self._left < 0:
            time.sleep(min(-self._left / _SHARE, _LONGEST_REST_SECONDS))


class _Watched(asyncio.Protocol):
    """Protocol in front of uvicorn's that notes when bytes come, and when an answer is not taken."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol, pace: Pace) -> None:
        self._connections = connections
        self._inner = inner
        self._pace = pace

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection = self._connections.of(transport.get_extra_info("socket").fileno())
        self._connection.enter(Stage.HEAD)
        transport.set_write_buffer_limits(high=0)  # so that writing pauses until everything was taken
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._pace.keep()
        self._connection.heard()
        # h11 limits only incomplete heads: one that comes in a single piece could have any size.
        for start in range(0, len(data), _PIECE_BYTES):
            if not self._transport.is_closing():
                try:
                    self._inner.data_received(data[start : start + _PIECE_BYTES])
                except (h11.ProtocolError, ValueError):
                    # uvicorn cannot refuse once an answer has begun, and h11 before 0.15 reads any number.
                    self._transport.close()

    def pause_writing(self) -> None:
        self._connection.waits = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._connection.taken()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(None)  # given an error, uvicorn would keep the connection until its time-out


class _Answers:
    """ASGI application around another one that tells each connection when its answers begin and end."""

    def __init__(self, app: ASGIApp, connections: Connections, pace: Pace) -> None:
        self._app = app
        self._connections = connections
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pace.keep()  # here too: what comes in one piece may hold hundreds of requests
        connection = self._connections.to(scope["client"])
        if connection is None:  # it has ended before its request was read
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message.get("status") == 200 and scope["path"] != "/livez":
                connection.useful = True
            with contextlib.suppress(h11.ProtocolError, OSError):  # bytes after the request have ended the connection
                await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.answered(scope.get(ONCE_TAKEN))

        connection.asked()
        await self._app(scope, receive, sending)
