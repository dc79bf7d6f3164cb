"""How many connections there may be, and how long each may stay as it is: what is too many or too slow is shut.

Shut means at the socket, both ways: whatever holds it (a TLS handshake that does not end, an answer that nobody reads)
sees its end there and lets go.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any

KEEP_ALIVE_SECONDS = 130
"""Longer than the longest usual scrape interval (a minute): a kept connection tells two equal scrapers apart."""


class Stage(Enum):
    """What is waited for on a connection."""

    HEAD = "the end of a TLS handshake, or of the head of a request that was begun"
    ANSWER = "an answer, or that it is taken"
    REST = "the next request"


LIMITS = {Stage.HEAD: 10.0, Stage.ANSWER: 30.0, Stage.REST: KEEP_ALIVE_SECONDS + 30.0}
"""Seconds that each may take."""

_MOST = 128
_FEWEST = 8
_SHARE = 4
"""Of the files that this process may open: the rest is the training's."""

_QUEUE = 1024
_SEND_BUFFER_BYTES = 256 * 1024
"""What the kernel keeps of an answer that is not read. By itself it goes up to several megabytes."""

_AT_ONCE = struct.pack("ii", 1, 0)


class Connection:
    """One accepted connection, from ``address`` (host and port).

    ``useful``: it has fetched something, so the others go first where there are too many. ``waits``: the other side
    does not take what was sent.
    """

    def __init__(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.sock = sock
        self.address = address
        self.useful = False
        self.waits = False
        self.over = False
        self._answering = False
        self.enter(Stage.HEAD)

    def enter(self, stage: Stage) -> None:
        """What is waited for from now on."""
        self.stage = stage
        self.since = time.monotonic()

    def heard(self) -> None:
        """Note that bytes have come: after a rest, they begin a request."""
        if self.stage is Stage.REST:
            self.enter(Stage.HEAD)

    def asked(self) -> None:
        """Note that a request is complete. Its time has begun before where an earlier answer is not taken yet."""
        self._answering = True
        if not self.waits:
            self.enter(Stage.ANSWER)

    def answered(self) -> None:
        """Note that an answer is complete; it may have to be taken yet."""
        self._answering = False
        if not self.waits:
            self.enter(Stage.REST)

    def taken(self) -> None:
        """Note that all that was sent is taken."""
        self.waits = False
        self.enter(Stage.ANSWER if self._answering else Stage.REST)

    def shut(self) -> None:
        """End it, whatever it is doing; its owner closes it, and then the kernel keeps nothing of it."""
        self.over = True
        with contextlib.suppress(OSError):  # the other side has ended it already
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """All that one listening socket has accepted, for the thread that accepts."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._accepted: dict[int, Connection] = {}

    def __len__(self) -> int:
        self._forget_closed()
        return len(self._accepted)

    def admit(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Keep one more, from ``address``. Where that is too many, another one goes for it.

        Rather one that was of no use, then one of the host that has most, then the one that has been as it is for
        longest.
        """
        self._forget_closed()
        living = [each for each in self._accepted.values() if not each.over]
        if len(living) >= self.most:
            rather = [each for each in living if not each.useful] or living
            crowd = Counter(each.address[0] for each in rather)
            min(rather, key=lambda each: (-crowd[each.address[0]], each.since)).shut()
        self._accepted[sock.fileno()] = Connection(sock, address)

    def of(self, fileno: int) -> Connection:
        """Return the one with this file descriptor."""
        return self._accepted[fileno]

    def to(self, address: Sequence[Any] | None) -> Connection | None:
        """Return the latest one from ``address`` (host and port); None where there is none any more."""
        wanted = tuple(address or ())
        return next((each for each in reversed(self._accepted.values()) if each.address == wanted), None)

    def sweep(self) -> None:
        """Shut those whose time is over."""
        now = time.monotonic()
        for each in self._accepted.values():
            if now - each.since > LIMITS[each.stage] and not each.over:
                each.shut()

    def shut(self, *stages: Stage) -> None:
        """Shut all that are at these stages."""
        for each in self._accepted.values():
            if each.stage in stages:
                each.shut()

    def close(self) -> None:
        """Close this process's own copies, without a word to the other side: for a forked child."""
        for each in self._accepted.values():
            each.sock.close()

    def _forget_closed(self) -> None:
        closed = [fileno for fileno, each in self._accepted.items() if each.sock.fileno() < 0]
        for fileno in closed:
            del self._accepted[fileno]


class Listener(socket.socket):
    """A listening socket that keeps track of what it has accepted."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        # What is accepted has the same options. An answer leaves in pieces: the last one would wait for a receipt.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections = Connections(_room())

    def listen(self, backlog: int = 0) -> None:
        """Let many wait to be accepted: who finds the queue full comes a second later, or three."""
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """As ever, and the connection is one of `connections`."""
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
