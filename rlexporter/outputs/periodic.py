"""Periodic work beside the training, on a thread of its own, until it is closed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread


class Ticker:
    """Calls ``tick`` at once, then every ``seconds``, and soon after `wake`; calls ``last`` at the end.

    All calls are made on the ticker's thread, except ``last`` if it was never started. ``tick`` may return the seconds
    to wait this time, to back off. Exceptions of both go to ``failed``; the thread goes on.
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
        self._seconds = seconds
        self._tick = tick
        self._last = last
        self._failed = failed
        self._woken: SimpleQueue[None] = SimpleQueue()  # reentrant: a signal handler may interrupt a `wake` with one
        self._closed = False
        self._thread = Thread(target=self._run, name=f"rlexporter-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Tick soon, because of a change that should not wait. Safe on any thread and in a signal handler."""
        self._woken.put(None)

    def close(self, patience: float | None = None) -> None:
        """Call ``last``, and return when the thread has ended, after ``patience`` seconds at the latest.

        A thread that hangs in a call to another system ends with the time-out of that call.
        """
        self._closed = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(self.patience if patience is None else patience)
        elif self._thread.ident is None:  # never started, but ``last`` may have something to clean up
            self._call(self._last)

    def _run(self) -> None:
        while not self._closed:
            wait = self._call(self._tick)
            with contextlib.suppress(Empty):
                self._woken.get(timeout=self._seconds if wait is None else wait)
                while True:
                    self._woken.get_nowait()
        self._call(self._last)

    def _call(self, what: Callable[[], float | None]) -> float | None:
        try:
            return what()
        except Exception as error:  # noqa: BLE001 - the next tick may do better
            self._failed(error)
            return None
