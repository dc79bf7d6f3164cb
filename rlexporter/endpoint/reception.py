"""The door: who is let in from the queue of the kernel, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from rlexporter.endpoint.connections import Connection, Listener
from rlexporter.endpoint.turns import SOON_SECONDS, Turns

_QUEUE = 1024
_ACCEPTED_AT_ONCE = 64
_NO_FILES_SECONDS = 1.0
_GRACE_SECONDS, _GRACE_OF_ALL_SECONDS = 1.0, 100.0
"""The time that each has to answer us before it may have to make room; and of all together, if many wait for room."""
_MOST_WAITING = 32
"""While so many strangers wait for a turn others wait in the kernel: they would take the room of those who owe us."""
_LONG_QUEUE = 64
"""From so many on, who waits in the kernel is looked at: whoever is known, or comes from elsewhere, is let in.

The queue is as long as this while more come than can be answered, so a known one waits as long as so many take to come.
"""


class Reception:
    """Accepts connections, at a pace that strangers can afford, and has each that may stay entered in its turn."""

    def __init__(
        self,
        listener: Listener,
        turns: Turns,
        enter: Callable[[Connection], object],
        failed: Callable[[Exception], None],
    ) -> None:
        self._listener = listener
        self._turns = turns
        self._enter = enter
        self._failed = failed

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to accept on this event loop, whose server closes the listener."""
        self._loop = loop
        self._listener.listen(_QUEUE)
        self._listener.setblocking(False)
        loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        self._turns.charge(None)
        connections, queue = self._listener.connections, self._listener.queue
        grace = min(_GRACE_SECONDS, _GRACE_OF_ALL_SECONDS / max(queue, 1))
        for _ in range(_ACCEPTED_AT_ONCE):
            now = self._turns.clock()
            crowded = self._turns.strangers.waiting >= _MOST_WAITING or not connections.has_room(now, grace)
            if crowded and queue < _LONG_QUEUE:
                self._pause(SOON_SECONDS)
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more files may be open
                self._failed(error)
                self._pause(_NO_FILES_SECONDS)
                return
            connection = Connection(sock, address[:2], self._turns.hosts.at(address[0], now))
            if connections.admit(connection, now, grace):
                self._turns.ask(connection, partial(self._enter, connection))
        if self._turns.strangers.left < 0:
            self._pause(SOON_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Accept nobody for some seconds: who comes meanwhile waits in the kernel, which costs nothing."""
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:  # else the server has ended meanwhile
            self._loop.add_reader(self._listener.fileno(), self._accept)
