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
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlexporter.endpoint.connections import (
    KEEP_ALIVE_SECONDS,
    ONCE_TAKEN,
    TURN,
    Connection,
    Connections,
    Listener,
    Stage,
)
from rlexporter.endpoint.gate import Gate
from rlexporter.endpoint.reception import Reception
from rlexporter.endpoint.tls_protocol import TLSProtocol
from rlexporter.endpoint.turns import SOON_SECONDS, Turns
from rlexporter.outputs.periodic import unlogged
from rlexporter.status.page import POLICY

_MAX_HEAD_BYTES = 16 * 1024
_BROKEN = (h11.ProtocolError, ValueError)
"""What uvicorn raises where it cannot refuse, since an answer has begun; and h11 before 0.15 at any number."""
_READ_BYTES = 64 * 1024
"""What is read at a time: if more was left unread, the answer to a wrong request would be lost with the connection."""

_SWEEP_SECONDS = 0.1
_BEAT_SECONDS = 0.25
"""Timers go off together, at multiples of this: uvicorn's own and ours would wake the thread twenty times a second.

Timers of up to `SOON_SECONDS` keep their time: something waits for them.
"""
_FINISH_SECONDS = 1
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
        self,
        app: ASGIApp,
        listener: Listener,
        tls: ssl.SSLContext | None,
        failed: Callable[[Exception], None],
        *,
        guarded: bool,
    ) -> None:
        """``guarded``: True if requests have to bring a token."""
        self._listener = listener
        self._connections = listener.connections
        self._tls = tls
        self._failed = failed
        self._guarded = guarded
        self._answers = _Answers(app, listener.connections)
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self._answers,
                http="h11",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                proxy_headers=False,
                server_header=False,
                headers=_HEADERS,
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
        loop = _Loop(self._listener, self._tls, self._failed, guarded=self._guarded)
        loop.set_exception_handler(self._heard)
        self._answers.turns = loop.turns
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
    """Event loop whose server accepts, watches and encrypts its connections, all in the turns of their owners."""

    def __init__(
        self, listener: Listener, tls: ssl.SSLContext | None, failed: Callable[[Exception], None], *, guarded: bool
    ) -> None:
        super().__init__()
        self.turns = Turns(time.monotonic, time.thread_time, self.call_later, guarded=guarded)
        self._listener = listener
        self._tls = tls
        self._failed = failed
        self._room = memoryview(bytearray(_READ_BYTES))
        self._entering: set[asyncio.Task[object]] = set()

    def call_at(  # type: ignore[override] # Python 3.10 has no syntax for the types of asyncio's stubs
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call ``callback`` at ``when``, or a little later, together with others: each waking costs the training."""
        if when - self.time() > SOON_SECONDS:
            when = math.ceil(when / _BEAT_SECONDS) * _BEAT_SECONDS
        return super().call_at(when, callback, *args, context=context)

    async def create_server(
        self, protocol_factory: Callable[[], Any], *arguments: Any, **options: Any
    ) -> asyncio.Server:
        """Create uvicorn's server, for which we accept, with our protocols between its own and the socket."""
        server = await super().create_server(protocol_factory, *arguments, **options, start_serving=False)

        def enter(connection: Connection) -> None:
            entering = self.create_task(self._enter(connection, protocol_factory))
            self._entering.add(entering)
            entering.add_done_callback(self._entering.discard)

        Reception(self._listener, self.turns, enter, self._failed).open(self)
        return server

    async def _enter(self, connection: Connection, make: Callable[[], asyncio.Protocol]) -> None:
        """Take over a ``connection`` that was accepted, unless it was shut meanwhile."""
        if connection.over:
            return
        self.turns.charge(connection)
        connection.inside = True

        def met() -> asyncio.Protocol:
            connection.met = True
            return make()

        inner = TLSProtocol(self._tls, met) if self._tls else met()
        gate = Gate(connection, inner, self.turns, self._listener.connections, self._room, _BROKEN)
        with contextlib.suppress(OSError):  # the other side has gone
            await self.connect_accepted_socket(lambda: gate, connection.sock)


class _Answers:
    """ASGI application around another one that tells each connection when its answers begin and end."""

    turns: Turns
    """Those of the thread that answers."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connections.to(scope["client"])
        if connection is None:  # it has ended before its request was read
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message.get("status") == 200 and scope["path"] != "/livez" and not self.turns.guarded:
                self._trust(connection)
            with contextlib.suppress(h11.ProtocolError, OSError):  # bytes after the request have ended the connection
                await send(message)
            self.turns.charge(connection)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.answered(scope.get(ONCE_TAKEN))

        connection.asked()
        scope[TURN] = partial(self._turn, connection)
        await self._app(scope, receive, sending)

    async def _turn(self, connection: Connection, brings: bool) -> None:
        """Wait for the turn of ``connection``, whose request ``brings`` the token."""
        if self.turns.guarded:
            self._trust(connection, brings)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turns.ask(connection, partial(_come, turn))
        await turn
        self.turns.charge(connection)

    def _trust(self, connection: Connection, trusted: bool = True) -> None:
        if connection.trusted is not trusted:
            self.turns.trust(connection, trusted)
            self._connections.place(connection)
        elif trusted:
            connection.host.trusted_at = self.turns.clock()


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else whoever waited for it was cancelled
        turn.set_result(None)
