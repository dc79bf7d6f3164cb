"""Limits on the number of connections and on the time that each may spend in a stage.

A connection beyond them is shut at the socket, both ways: its owner (a TLS handshake that does not end, an answer that
nobody reads) then gets an end of file and closes it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

KEEP_ALIVE_SECONDS = 130
"""Longer than the usual scrape intervals (up to a minute): a kept connection tells two equal scrapers apart."""


ONCE_TAKEN = "rlexporter.once_taken"
"""Key of a request's scope under which an application may leave a function to call once its answer was taken."""


class Stage(Enum):
    """The event that a connection waits for."""

    HEAD = "the end of a TLS handshake, or of the head of a request that was begun"
    ANSWER = "an answer, or that it is taken"
    REST = "the next request"


LIMITS = {Stage.HEAD: 10.0, Stage.ANSWER: 30.0, Stage.REST: KEEP_ALIVE_SECONDS + 30.0}
"""Seconds that a connection may spend in each stage."""

_MOST = 128
_FEWEST = 8
_SHARE = 4
"""Divisor of the process's limit on open files: a quarter is for connections, the rest for the training."""

_QUEUE = 1024
_SEND_BUFFER_BYTES = 256 * 1024
"""Most that the kernel buffers of an unread answer; its own default goes up to several megabytes."""

_AT_ONCE = struct.pack("ii", 1, 0)


class Connection:
    """An accepted connection, from ``address`` (host and port).

    ``useful`` is True once it has fetched something: if there are too many connections, the others are shut first.
    ``waits`` is True while the other side does not take what was sent.
    """

    def __init__(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.sock = sock
        self.address = address
        self.useful = False
        self.waits = False
        self.over = False
        self._answering = False
        self._once_taken: Callable[[], object] | None = None
        self.enter(Stage.HEAD)

    def enter(self, stage: Stage) -> None:
        """Begin to wait for the event of ``stage``."""
        self.stage = stage
        self.since = time.monotonic()

    def heard(self) -> None:
        """Note that bytes have come: after a rest they begin a request."""
        if self.stage is Stage.REST:
            self.enter(Stage.HEAD)

    def asked(self) -> None:
        """Note that a request is complete. Its time has already begun if an earlier answer is not taken yet."""
        self._answering = True
        if not self.waits:
            self.enter(Stage.ANSWER)

    def answered(self, once_taken: Callable[[], object] | None = None) -> None:
        """Note that an answer is complete, even if the other side has not taken all of it.

        ``once_taken`` is called as soon as it has.
        """
        self._answering, self._once_taken = False, once_taken
        if not self.waits:
            self._rest()

    def taken(self) -> None:
        """Note that the other side has taken all that was sent."""
        self.waits = False
        if self._answering:
            self.enter(Stage.ANSWER)
        else:
            self._rest()

    def _rest(self) -> None:
        self.enter(Stage.REST)
        then, self._once_taken = self._once_taken, None
        if then is not None:
            then()

    def shut(self) -> None:
        """Shut the socket, whatever it is doing; once its owner closes it, the kernel keeps nothing of it."""
        self.over = True
        with contextlib.suppress(OSError):  # the other side may have ended it already
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """All connections that one listening socket has accepted. Only the accepting thread may use it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._accepted: dict[int, Connection] = {}

    def __len__(self) -> int:
        self._forget_closed()
        return len(self._accepted)

    def admit(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Keep one more connection, from ``address``; if that is too many, shut another one.

        Prefer one that has fetched nothing, then one of the host with the most, then the one longest in its stage.
        """
        self._forget_closed()
        living = [connection for connection in self._accepted.values() if not connection.over]
        if len(living) >= self.most:
            rather = [connection for connection in living if not connection.useful] or living
            crowd = Counter(connection.address[0] for connection in rather)
            min(rather, key=lambda connection: (-crowd[connection.address[0]], connection.since)).shut()
        self._accepted[sock.fileno()] = Connection(sock, address)

    def of(self, fileno: int) -> Connection:
        """Return the connection with the file descriptor ``fileno``."""
        return self._accepted[fileno]

    def to(self, address: Sequence[Any] | None) -> Connection | None:
        """Return the latest connection from ``address`` (host and port); None if it has gone."""
        wanted = tuple(address or ())
        latest_first = reversed(self._accepted.values())
        return next((connection for connection in latest_first if connection.address == wanted), None)

    def sweep(self) -> None:
        """Shut the connections whose time is over."""
        now = time.monotonic()
        for connection in self._accepted.values():
            if now - connection.since > LIMITS[connection.stage] and not connection.over:
                connection.shut()

    def shut(self, *stages: Stage) -> None:
        for connection in self._accepted.values():
            if connection.stage in stages:
                connection.shut()

    def close(self) -> None:
        """Close a forked child's copies of the sockets, without a word to the other side."""
        for connection in self._accepted.values():
            connection.sock.close()

    def _forget_closed(self) -> None:
        open_ones = {
            fileno: connection for fileno, connection in self._accepted.items() if connection.sock.fileno() >= 0
        }
        self._accepted = open_ones


class Listener(socket.socket):
    """A listening socket that keeps track of the connections it has accepted."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        # Accepted sockets inherit the options. Without TCP_NODELAY the last piece of an answer waits for a receipt.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections = Connections(_room())

    def listen(self, backlog: int = 0) -> None:
        """Listen with a long queue: a client that finds it full retries only after one or three seconds."""
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and add it to `connections`."""
        sock, address = super().accept()
        self.connections.admit(sock, address[:2])
        return sock, address


def _room() -> int:
    try:
        import resource
    except ImportError:  # not on Unix
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, files // _SHARE))
