"""`LoggedRun`: a run that is fed by the log lines of somebody's logger, of which nothing else is seen.

A logger may give a line in parts: `wandb.log({...}, commit=False)`, or one number with each `add_scalar`. The judge
compares what is of one line, so parts of one step wait for each other: until the step changes, a key comes again, the
line is said to be whole, no part has come for a second, or the run ends. A part that comes later still is a further
line of the same step.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from rlexporter.exporter import Exporter
from rlexporter.model.step import RunFacts

_QUIET = 1.0
"""The seconds without a further part after which a line is served."""
_LONGEST = 5.0
"""The seconds after which it is served although parts still come."""
_NEW_CLOCK = 10
"""So many lines in a row with a step of the past, each with another one, are those of a loop that began again."""


class LoggedRun:
    """Serves log lines by ``exporter``, which starts with `begin`. Any thread may call; nothing raises."""

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter
        self.step: int | None = None
        """The newest step of a line; None before there was one with a step."""
        self._begun = False
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._held: dict[str, object] = {}
        self._held_step: int | None = None
        self._first = self._last = 0.0
        self._behind: list[int] = []
        """The steps of the newest lines in a row that were of the past."""
        self._waiter: threading.Thread | None = None

    def begin(self, facts: RunFacts) -> None:
        """Begin the run with ``facts``; a second call does nothing. A port that is taken is replaced by the next."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        run = self.exporter.run
        with run.errors.guard("event"):
            run.prepare(facts)  # first, so that the name is known when the endpoint is told
        with run.errors.guard("event"):
            self.exporter.start(fallback=True)
        with run.errors.guard("event"):
            run.begin(facts)
        run.sink.before_end(self.flush)
        run.sink.on_close(self._stop)

    def log(
        self, values: Mapping[str, Any], step: int | None = None, *, whole: bool = True, replaces: bool = False
    ) -> None:
        """Take a line, or a part of one if it is not ``whole``. Values that are no numbers are left out.

        ``step``: a line whose step is of the past belongs to the newest one; without a step, each line is one.
        ``replaces``: True if a key that comes again in one step replaces the value before; else it is a new line.
        """
        if os.getpid() != self._process:
            return
        sink = self.exporter.run.sink
        with sink.guard("log"), self._lock:
            self.begin(RunFacts(open_ended=True))
            rest = sink.ahead(values)
            if rest:
                step = self._placed(step)
                if self._held and (step != self._held_step or not (replaces or rest.keys().isdisjoint(self._held))):
                    self.flush()
                self._hold(rest, step)
            if whole or self._closed.is_set():
                self.flush()
            elif rest and self._waiter is None:
                self._waiter = threading.Thread(target=self._wait, name="rlexporter-lines", daemon=True)
                self._waiter.start()

    def flush(self) -> None:
        """Serve what has waited for further parts of its line."""
        if os.getpid() != self._process:
            return
        with self._lock:
            held, self._held = self._held, {}
            if held:
                self.exporter.run.sink.log(held, step=self._held_step, flush=False)

    def end(self, error: BaseException | None = None) -> None:
        """End the run, by ``error`` or normally."""
        if os.getpid() == self._process:
            self.exporter.end(error)

    def _placed(self, step: int | None) -> int | None:
        """Return the step that a line belongs to: steps go forward, unless many of them say that a loop began again."""
        if step is None:
            return None
        if self.step is None or step >= self.step:
            self._behind.clear()
        else:
            if not self._behind or step > self._behind[-1]:
                self._behind.append(step)
            if len(self._behind) < _NEW_CLOCK:
                return self.step
            self._behind.clear()
        self.step = step
        return step

    def _hold(self, values: Mapping[str, object], step: int | None) -> None:
        self._last = time.monotonic()
        if not self._held:
            self._first, self._held_step = self._last, step
        self._held.update(values)

    def _wait(self) -> None:
        """Serve what nobody adds to any more."""
        while not self._closed.wait(_QUIET / 2):
            with self._lock:
                now = time.monotonic()
                if self._held and (now - self._last >= _QUIET or now - self._first >= _LONGEST):
                    self.flush()

    def _stop(self) -> None:
        """End the thread, since the exporter is closed; lines that come all the same do not wait."""
        self._closed.set()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and waiter is not threading.current_thread():
            waiter.join(_LONGEST)
