"""Bringing messages to one receiver, on a thread of its own, so that one who hangs keeps them from nobody else."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from threading import Thread
from typing import Protocol

from rlexporter.outputs.periodic import Ticker

TRIES = 4
"""How often a message is sent to a receiver that does not take it: at once, and 2, 8 and 32 seconds later."""
SEND_SECONDS = 60.0
"""The most seconds of one try. A time-out of a socket is no limit: it begins again with each byte that comes. A service
that wants a pause between two recipients of an address takes some seconds for each.
"""
MOST_BYTES = 4 << 20
"""The most bytes of an answer, on one connection. Whoever sends more never ends, and libraries keep all of it."""
WAITING = 6
"""The most messages that wait for one receiver; then the oldest is given up."""
_IDLE_SECONDS = 86400.0


class NotifyError(Exception):
    """A message that was not taken. It names the kind of receiver, and no part of its address: that is a secret."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent, as plain text. ``word``: fine, look or act; ``last``: True if it says no more than the end."""

    word: str
    title: str
    body: str
    last: bool = False


class Receiver(Protocol):
    """Somewhere that messages go."""

    kind: str
    """A word for the log, which holds no secret."""

    def send(self, message: Message) -> bool:
        """Send ``message``; return False if it was not taken. Never raises. Called on one thread at a time."""


@dataclass(slots=True, eq=False)
class _Delivery:
    """A message on its way."""

    message: Message
    tries: int = 0
    due: float = -inf


class Courier(Ticker):
    """Brings messages to ``receiver`` one after another, each in at most `TRIES` tries.

    `start` begins the thread that sends; `bring`, `watch`, `give_up` and `stop` belong to another. Both tell ``failed``
    of what was not taken. ``clock``: seconds, by which the next try is due.
    """

    def __init__(
        self, receiver: Receiver, failed: Callable[[Exception], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(f"notify-{receiver.kind}", _IDLE_SECONDS, self.deliver, failed, last=self._finish)
        self.taken = 0
        """How many messages were taken."""
        self._receiver, self._clock = receiver, clock
        self._waiting: list[_Delivery] = []
        self._most = SEND_SECONDS
        """The seconds that a try may take."""
        self._since: float | None = None
        """When the try that is under way began, by `time.monotonic`; None without one."""
        self._cut = False
        """True if it was cut: then it has failed, even if what came of the answer looks good."""

    @property
    def gone(self) -> bool:
        """Return True if its thread has ended, or was never started."""
        return not self._thread.is_alive()

    def bring(self, message: Message) -> None:
        """Send ``message`` after those that are waiting. Returns at once."""
        self._waiting.append(_Delivery(message))
        if len(self._waiting) > WAITING:
            self._give_up(self._waiting[0])
        self.wake()

    def give_up(self) -> None:
        """Give up whatever is left."""
        for each in tuple(self._waiting):
            self._give_up(each)

    def watch(self) -> bool:
        """End the try that is under way if it has taken too long, or too much came; return False if nothing is left."""
        since = self._since
        if since is not None:
            late = time.monotonic() > min(since + self._most, self._until)
            much = any(_received(each) > MOST_BYTES for each in _connections(self._thread))
            if (late or much) and self._since == since:  # else another try has begun
                self._cut = True
                cut(self._thread)
        return bool(self._waiting)

    def stop(self, patience: float | None = None) -> None:
        """Try once more whatever was not taken, and end. All that is left shares the time, what is under way too."""
        super().stop(patience)
        self._most = max(self._until - time.monotonic(), 0.0) / max(len(self._waiting), 1)
        if self._since is not None:
            self._since = time.monotonic()

    def deliver(self) -> float:
        """Send what is due; return the seconds until the next is."""
        for each in tuple(self._waiting):
            if each.due <= self._clock():
                self._try(each)
        return min((max(each.due - self._clock(), 0.1) for each in tuple(self._waiting)), default=_IDLE_SECONDS)

    def _finish(self) -> None:
        """Try what was never tried, then once more whatever is left: the last message before one that has failed."""
        for each in [each for each in self._waiting if not each.tries]:
            self._try(each)
        for each in tuple(self._waiting):
            each.tries = TRIES - 1
            self._try(each)

    def _try(self, delivery: _Delivery) -> None:
        if time.monotonic() > self._until:
            self._give_up(delivery)
            return
        self._since, self._cut = time.monotonic(), False
        taken = self._receiver.send(delivery.message) and not self._cut
        self._since = None
        delivery.tries += 1
        self.taken += taken
        if taken or delivery not in self._waiting:
            self._forget(delivery)
        elif delivery.tries == TRIES:
            self._give_up(delivery)
        else:
            delivery.due = self._clock() + 2.0 * 4 ** (delivery.tries - 1)
            self._failed(NotifyError(f"{self._receiver.kind} did not take a message; it is tried again"))

    def _give_up(self, delivery: _Delivery) -> None:
        self._forget(delivery)
        self._failed(NotifyError(f"{self._receiver.kind} did not take a message; it is given up"))

    def _forget(self, delivery: _Delivery) -> None:
        with contextlib.suppress(ValueError):  # it may have been given up meanwhile
            self._waiting.remove(delivery)


def cut(thread: Thread) -> None:
    """Shut down the connections that the call under way in ``thread`` waits for, so that it fails at once.

    Libraries that send have no way to end a call from outside. One that waits for something else, such as a name
    server, goes on until its own time-out.
    """
    for each in _connections(thread):
        with contextlib.suppress(OSError):  # not by the method of TLS: it would change what the thread works with
            socket.socket.shutdown(each, socket.SHUT_RDWR)


def _connections(thread: Thread) -> Iterator[socket.socket]:
    """Yield what the call under way in ``thread`` reads from, or connects."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        for held in tuple(frame.f_locals.values()):
            found = held._sock if isinstance(held, socket.SocketIO) else held  # type: ignore[attr-defined]
            if isinstance(found, socket.socket):
                yield found
        frame = frame.f_back


def _received(connection: socket.socket) -> int:
    """Return the bytes that came on ``connection``, as Linux counts them; 0 where nothing counts."""
    try:
        counted = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
    except (AttributeError, OSError):
        return 0
    return int.from_bytes(counted[128:], sys.byteorder)
