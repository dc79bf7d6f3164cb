"""The gate between a socket and the protocols that are spoken on it: what comes is passed on in turns."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from rlexporter.endpoint.connections import Connection, Connections, Stage
from rlexporter.endpoint.turns import Turns

PIECE_BYTES = 4 * 1024
"""What h11 is handed at a time: it limits only incomplete heads, and one in a single piece could have any size."""


class Gate(asyncio.BufferedProtocol):
    """Protocol in front of the ones that do the work: hands them what comes, piece by piece, in turns.

    While a piece waits for its turn nothing more is read. ``room``: where bytes are read to, for all connections;
    ``broken``: what ``inner`` raises for bytes that mean nothing.
    """

    def __init__(
        self,
        connection: Connection,
        inner: asyncio.Protocol,
        turns: Turns,
        connections: Connections,
        room: memoryview,
        broken: tuple[type[Exception], ...],
    ) -> None:
        self._connection = connection
        self._connections = connections
        self._inner = inner
        self._turns = turns
        self._room = room
        self._broken = broken
        self._pieces: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._turns.charge(self._connection)
        self._transport = Outside(transport)
        self._connection.abort = transport.abort
        self._connection.enter(Stage.HEAD)
        transport.set_write_buffer_limits(high=0)  # so that writing pauses until everything was taken
        self._inner.connection_made(self._transport)
        if self._connection.over:  # it was shut while it came in
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.heard()
        self._pieces.append(bytes(self._room[:nbytes]))
        if len(self._pieces) == 1:
            self._turns.ask(self._connection, self._pass_on)
        self._transport.hold(bool(self._pieces))

    def _pass_on(self) -> None:
        read = self._pieces.popleft()
        for start in range(0, len(read), PIECE_BYTES):
            if not self._transport.is_closing():
                try:
                    self._inner.data_received(read[start : start + PIECE_BYTES])
                except self._broken:
                    self._transport.close()
        if self._pieces:
            self._turns.ask(self._connection, self._pass_on)
        else:
            self._transport.hold(False)

    def pause_writing(self) -> None:
        self._connection.waits = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._turns.charge(self._connection)
        self._connection.taken()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._turns.charge(self._connection)
        self._connections.forget(self._connection)
        self._connection.abort = None
        self._pieces.clear()
        self._inner.connection_lost(None)  # given an error, uvicorn would keep the connection until its time-out
        self._turns.charge(None)  # nothing of it is left, in nobody's memory


class Outside(asyncio.Transport):
    """The transport as the protocols behind a gate see it: reads while neither they nor the gate want it to rest."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._paused = self._held = False

    def hold(self, held: bool) -> None:
        """Have nothing read while ``held``, whatever the protocols say."""
        self._held = held
        self._flow()

    def pause_reading(self) -> None:
        self._paused = True
        self._flow()

    def resume_reading(self) -> None:
        self._paused = False
        self._flow()

    def _flow(self) -> None:
        if self._paused or self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
