"""Periodic work beside the training, on a thread of its own, which may keep out of the training's log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread, get_ident

REST_SECONDS = 0.25
"""The rest after a tick; a `wake` during it waits until it is over."""

LONGEST_REST_SECONDS = 1.0
"""The rest grows to this while wakes keep cutting it short: a condition may flap at every step for hours."""

_FILTERS = Lock()
"""Held while a logger gets other filters: always a new list. Who goes through a list from which one is taken away
passes over the next one, and logs what that keeps back."""


class Ticker:
    """Calls ``tick`` at once, then every ``seconds``, and within a second after `wake`; calls ``last`` at the end.

    It makes all calls on its own thread, except ``last`` if it was never started. To back off, ``tick`` may return the
    seconds to wait this time. Exceptions of both go to ``failed``, and the thread goes on. It rests between two ticks,
    however often it is woken.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        tick: Callable[[], float | None],
        failed: Callable[[Exception], None],
        *,
        last: Callable[[], None] = lambda: None,
        patience: float = 5.0,
    ) -> None:
        self.patience = patience
        """Most seconds that `close` waits for the thread."""
        self._until = inf
        """When `close` waits no longer, by `time.monotonic`."""
        self._seconds = seconds
        self._tick = tick
        self._last = last
        self._failed = failed
        self._woken: SimpleQueue[None] = SimpleQueue()  # reentrant: a signal handler may interrupt a `wake` with one
        self._asked = False
        self._closed = False
        self._rest = REST_SECONDS
        self._thread = Thread(target=self._run, name=f"rlexporter-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Tick soon, because of a change that should not wait. Safe on any thread and in a signal handler.

        It takes no lock. While a tick is under way or at rest, any number of calls are one.
        """
        if not self._asked:
            self._asked = True
            self._woken.put(None)

    def stop(self, patience: float | None = None) -> None:
        """Have ``last`` called, and wait for nothing: `close` does that, until ``patience`` seconds from now."""
        if not self._closed:
            self._until = time.monotonic() + (self.patience if patience is None else patience)
            self._closed = True
            self._woken.put(None)

    def close(self, patience: float | None = None) -> None:
        """Call ``last``, and return when the thread has ended, after ``patience`` seconds at the latest.

        A thread that hangs in a call to another system ends with the time-out of that call.
        """
        self.stop(patience)
        if self._thread.is_alive():
            self._thread.join(max(self._until - time.monotonic(), 0.0))
        elif self._thread.ident is None:  # never started, but ``last`` may have something to clean up
            self._call(self._last)

    def _run(self) -> None:
        while not self._closed:
            self._asked = False  # before the tick looks: what comes later is for the next one
            wait = self._call(self._tick)
            self._pause(self._seconds if wait is None else wait)
        self._call(self._last)

    def _pause(self, seconds: float) -> None:
        """Wait ``seconds``, or less if woken, but for the rest; return at once when closed."""
        rest = min(self._rest, seconds)
        until = time.monotonic() + rest
        while not self._closed and (left := until - time.monotonic()) > 0:
            self._hear(left)
        if self._asked:
            self._rest = min(2 * self._rest, LONGEST_REST_SECONDS)
        elif not self._closed:
            self._rest = REST_SECONDS
            self._hear(seconds - rest)

    def _hear(self, seconds: float) -> None:
        with contextlib.suppress(Empty):
            self._woken.get(timeout=seconds)

    def _call(self, what: Callable[[], float | None]) -> float | None:
        try:
            return what()
        except Exception as error:  # noqa: BLE001 - the next tick may do better
            self._failed(error)
            return None


@contextlib.contextmanager
def unlogged(loggers: Sequence[str]) -> Iterator[deque[str]]:
    """Keep what this thread writes to ``loggers`` out of the training's log; yield the last two messages."""
    said: deque[str] = deque(maxlen=2)
    thread = get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        if get_ident() != thread:  # a record may not know its thread
            return True
        said.append(record.getMessage())
        return False

    filtered = [logging.getLogger(name) for name in loggers]
    for logger in filtered:
        with _FILTERS:
            logger.filters = [*logger.filters, elsewhere]
    try:
        yield said
    finally:
        for logger in filtered:
            with _FILTERS:
                logger.filters = [each for each in logger.filters if each is not elsewhere]
