"""Limits on the number of connections and on the time that each may spend in a stage.

A connection beyond them is ended at once, whatever it is doing: a handshake that does not end, an answer that nobody
reads. Where there is no room, new ones wait in the queue of the kernel.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from rlexporter.endpoint.turns import Host

KEEP_ALIVE_SECONDS = 130
"""Longer than the usual scrape intervals (up to a minute): a kept connection tells two equal scrapers apart."""


ONCE_TAKEN = "rlexporter.once_taken"
"""Key of a request's scope under which an application may leave a function to call once its answer was taken."""
TURN = "rlexporter.turn"
"""Key of a request's scope with a function to await before it is answered, which takes whether it brings the token."""


class Stage(Enum):
    """The event that a connection waits for."""

    HEAD = "the end of a TLS handshake, or of the head of a request that was begun"
    ANSWER = "an answer, or that it is taken"
    REST = "the next request"


LIMITS = {Stage.HEAD: 10.0, Stage.ANSWER: 30.0, Stage.REST: KEEP_ALIVE_SECONDS + 30.0}
"""Seconds that a connection may spend in each stage."""


_MOST = 256
_FEWEST = 8
_SHARE = 4
"""Divisor of the process's limit on open files: a quarter is for connections, the rest for the training."""

_SEND_BUFFER_BYTES = 128 * 1024
"""Most that the kernel buffers of an unread answer; its own default goes up to several megabytes."""

_UNACKED = 24
"""Where `struct tcp_info` has the connections that wait to be accepted."""

_AT_ONCE = struct.pack("ii", 1, 0)


class Connection:
    """An accepted connection, from ``address`` (host and port): a `Client` of `rlexporter.endpoint.turns`.

    It may be ``inside``, where the event loop has it and ends it by ``abort``, or wait outside for that. ``trusted`` is
    True once it has brought the token, or where there is none has fetched something: if there are too many connections,
    the others are shut first, before all those that have not ``met`` us: whose handshake of TLS is not complete, which
    is where most attacks stop. ``waits`` is True while the other side does not take what was sent.
    """

    def __init__(self, sock: socket.socket, address: tuple[str, int], host: Host) -> None:
        self.sock = sock
        self.address = address
        self.host = host
        self.trusted = False
        self.spent = 0.0
        self.asks = False
        self.inside = False
        self.met = False
        self.abort: Callable[[], object] | None = None
        self.waits = False
        self.over = False
        self._answering = False
        self._once_taken: Callable[[], object] | None = None
        self.enter(Stage.HEAD)

    def enter(self, stage: Stage) -> None:
        """Begin to wait for the event of ``stage``."""
        self.stage = stage
        self.since = time.monotonic()

    def served(self, waited: float) -> None:
        """Note that it has its turn: the time in which it has waited for us is not its own."""
        self.since += waited

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
        """End it, whatever it is doing; the kernel keeps nothing of it."""
        self.over = True
        with contextlib.suppress(OSError):  # the other side may have ended it already
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        if not self.inside:
            self.sock.close()
        elif self.abort is not None:
            self.abort()


class Connections:
    """All connections that one listening socket has accepted. Only the accepting thread may use it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._all: dict[tuple[Any, ...], Connection] = {}
        self._strangers: dict[Host, dict[Connection, None]] = {}
        """Those that live and were never trusted, by host, the oldest first."""
        self._trusted: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def has_room(self, now: float, grace: float) -> bool:
        """Return True if there is room for one more, or for somebody who may have to make room for it.

        ``grace``: the seconds that each has to answer us before.
        """
        return (
            self._living() < self.most or not self._strangers or self._owing(self._crowded(now), now, grace) is not None
        )

    def admit(self, connection: Connection, now: float, grace: float) -> bool:
        """Keep one more connection; if that is too many, shut another one, or else this one and return False.

        The one to shut was never trusted, if there is such a one, and is of the host with the most of these, for its
        weight: that which has owed us something for longest, else the newest.
        """
        full = self._living() >= self.most
        if full and not self._strangers:
            self.shut_one(min(self._trusted, key=lambda trusted: trusted.since))
            full = False
        self._all[connection.address] = connection
        self.place(connection)
        if full:
            host = self._crowded(now)
            self.shut_one(self._owing(host, now, grace) or next(reversed(self._strangers[host])))
        return not connection.over

    def place(self, connection: Connection) -> None:
        """Sort a connection in by whether it is trusted, which may have changed."""
        self._take_out(connection)
        if connection.trusted:
            self._trusted[connection] = None
        else:
            self._strangers.setdefault(connection.host, {})[connection] = None

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        connection.over = True
        self._take_out(connection)
        if self._all.get(connection.address) is connection:
            del self._all[connection.address]

    def shut_one(self, connection: Connection) -> None:
        """Shut a connection; one that is inside is forgotten by its owner once it has closed it."""
        connection.shut()
        self._take_out(connection)
        if not connection.inside:
            self.forget(connection)

    def to(self, address: Sequence[Any] | None) -> Connection | None:
        """Return the latest connection from ``address`` (host and port); None if it has gone."""
        return self._all.get(tuple(address or ()))

    def sweep(self) -> None:
        """Shut the connections whose time is over."""
        now = time.monotonic()
        for connection in [*self._all.values()]:
            late = now - connection.since > LIMITS[connection.stage]
            if late and not connection.over and not connection.asks:
                self.shut_one(connection)

    def shut(self, *stages: Stage) -> None:
        for connection in [*self._all.values()]:
            if connection.stage in stages:
                self.shut_one(connection)

    def close(self) -> None:
        """Close a forked child's copies of the sockets, without a word to the other side."""
        for connection in self._all.values():
            connection.sock.close()

    def _living(self) -> int:
        return len(self._trusted) + sum(map(len, self._strangers.values()))

    def _crowded(self, now: float) -> Host:
        """Return the host with the most connections that were never trusted, for its weight; there has to be one."""
        return max(self._strangers, key=lambda host: len(self._strangers[host]) / host.weight(now))

    def _owing(self, host: Host, now: float, grace: float) -> Connection | None:
        """Return a stranger of ``host`` that does not wait for us, and has had its time; None if there is none.

        It is the oldest that has not met us, else the oldest.
        """
        owing = [each for each in self._strangers[host] if not each.asks and now - each.since > grace]
        return next((each for each in owing if not each.met), owing[0] if owing else None)

    def _take_out(self, connection: Connection) -> None:
        self._trusted.pop(connection, None)
        strangers = self._strangers.get(connection.host)
        if strangers is not None and strangers.pop(connection, 0) is None and not strangers:
            del self._strangers[connection.host]


class Listener(socket.socket):
    """A listening socket that keeps track of the connections it has accepted."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        # Accepted sockets inherit the options. Without TCP_NODELAY the last piece of an answer waits for a receipt.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections = Connections(_room())

    @property
    def queue(self) -> int:
        """The connections that wait to be accepted, as the kernel counts them; 0 where it does not tell."""
        if not hasattr(socket, "TCP_INFO"):
            return 0
        with contextlib.suppress(OSError, struct.error):
            told = self.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED + 4)
            return int(struct.unpack_from("I", told, _UNACKED)[0])
        return 0


def _room() -> int:
    try:
        import resource
    except ImportError:  # not on Unix
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, files // _SHARE))
