"""A run that is fed by the log lines of somebody's logger, of which nothing else is seen, and the logger that feeds it.

A logger may give a line in parts: `wandb.log({...}, commit=False)`, or one number with each `add_scalar`. The judge
compares what is of one line, so parts of one step wait for each other: until the step changes, a key comes again, the
line is said to be whole, no part has come for a second, or the run ends. A part that comes later still is a further
line of the same step.

A line often passes several loggers: verl's `Tracking` calls `wandb.log` and `add_scalar`, `Accelerator.log` calls its
trackers. A watched call made inside another watched call is therefore ignored. Of loggers that are called one after
the other, only one feeds, which `Sources` sees to: the first in the order of `RLEXPORTER_FROM` that has logged a
number. Where a trainer has a callback of ours, or the script an `Exporter`, that one feeds and no logger does.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlexporter.exporter import Exporter, linger, serving
from rlexporter.frameworks.common import Feed
from rlexporter.frameworks.known import family_of, written_by
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts
from rlexporter.model.values import Unreadable, read

logger = logging.getLogger("rlexporter")

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
        run = self.exporter._run
        with run.errors.guard("event"):
            run.prepare(facts)  # first, so that the name is known when the endpoint is told
        with run.errors.guard("event"):
            self.exporter.start(fallback=True)
        with run.errors.guard("event"):
            run.begin(facts)
        run.feed.before_end(self.flush)
        run.feed.on_close(self._stop)

    def log(
        self, values: Mapping[str, Any], step: int | None = None, *, whole: bool = True, replaces: bool = False
    ) -> None:
        """Take a line, or a part of one if it is not ``whole``. Values that are no numbers are left out.

        ``step``: a line whose step is of the past belongs to the newest one; without a step, each line is one.
        ``replaces``: True if a key that comes again in one step replaces the value before; else it is a new line.
        """
        if os.getpid() != self._process:
            return
        sink = self.exporter._run.feed
        with sink.guard("log"), self._lock:
            self.begin(RunFacts(open_ended=True))
            rest = sink.ahead(values)
            if rest:
                step = self._placed(step)
                if self._held and (step != self._held_step or not (replaces or rest.keys().isdisjoint(self._held))):
                    self.flush()
                self._last = time.monotonic()
                if not self._held:
                    self._first, self._held_step = self._last, step
                self._held.update(rest)
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
                self.exporter._run.feed.log(held, step=self._held_step, flush=False)

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


class Sources:
    """Opens the run of this process on the first line of a source, and keeps the lines of others out.

    ``order``: the names of the sources that are asked for, the preferred first. Any thread may call; nothing raises.
    """

    def __init__(self, order: Sequence[str]) -> None:
        self.order = tuple(order)
        self.run: LoggedRun | None = None
        self._source = ""
        self._after: int | None = None
        """The last step that a less preferred source has fed, when another takes over; None if none did."""
        self._spent = False
        self._opened: weakref.WeakSet[Exporter] = weakref.WeakSet()
        self._told: set[str] = set()
        self._lock = threading.RLock()
        self._process = os.getpid()

    def log(
        self,
        source: str,
        facts: Callable[[], RunFacts],
        values: Mapping[str, Any],
        step: int | None,
        *,
        whole: bool,
        replaces: bool = False,
        chosen: bool = False,
    ) -> None:
        """Take a line of ``source``, as `LoggedRun.log` does. ``facts``: those of the run, for its first line.

        Where they name no framework, the keys of that line may.

        ``chosen``: True if the source itself lets one process of all log, so that its rank does not matter.
        """
        if os.getpid() != self._process or self._spent:
            return
        with self._lock:
            if not self._feeds(source) or (self.run is None and not _has_number(values)):
                return
            if self.run is None:
                self._open(source, lambda: _told(facts(), values), chosen)
            if self.run is not None and (self._after is None or step is None or step > self._after):
                self._after = None
                self.run.log(values, step, whole=whole, replaces=replaces)

    def end(self, source: str, error: BaseException | None = None, *, lingers: bool = False) -> None:
        """End the run if ``source`` feeds it, by ``error`` or normally. A later line opens another.

        ``lingers``: True to serve the end for a while if this is an actor, which is killed when its driver ends.
        """
        if os.getpid() != self._process or source != self._source:
            return
        with self._lock:
            run, self.run = self.run, None
            if run is not None:
                run.end(error)
        if run is not None and lingers and _is_actor():
            linger(run.exporter)

    def flush(self, source: str) -> None:
        """Serve what waits, if ``source`` feeds the run."""
        if source == self._source and self.run is not None:
            self.run.flush()

    def feed(self, source: str) -> Feed:
        """Return the way of the lines of ``source``, for what watches it."""
        return Feed(source, partial(self.log, source), partial(self.end, source), partial(self.flush, source))

    def leave(self) -> None:
        """Stop to serve, and feed no more."""
        self._spent = True
        run, self.run = self.run, None
        if run is not None:
            run.end()
            run.exporter.close()

    def _feeds(self, source: str) -> bool:
        """Return True if ``source`` is the one to feed the run, and note when it takes over from another."""
        callback = sys.modules.get("rlexporter.integrations.callback")  # imports transformers, so not imported here
        made = callback is not None and callback.made
        if made or any(exporter not in self._opened for exporter in serving()):
            # A trainer of this process has a callback of ours, or the script an exporter.
            self.leave()
            return False
        if self._source in ("", source):
            self._source = source
        elif self.order.index(source) < self.order.index(self._source):
            self._source, self._after = source, self.run.step if self.run is not None else None
        elif source not in self._told:
            self._told.add(source)
            logger.info("rlexporter: %s feeds this run, so lines of %s are not read", self._source, source)
        return self._source == source

    def _open(self, source: str, facts: Callable[[], RunFacts], chosen: bool) -> None:
        try:
            exporter = Exporter()
            known = facts() if chosen or exporter._run.rank == 0 else None
        except Exception as error:  # the boundary: the script knows nothing of us
            trace = None if isinstance(error, SetupError) else error
            logger.warning("rlexporter does not read what %s logs: %s", source, error, exc_info=trace)
            known = None
        if known is None:
            self._spent = True
            return
        self._opened.add(exporter)
        self.run = LoggedRun(exporter)
        self.run.begin(known)


def _told(facts: RunFacts, line: Mapping[str, Any]) -> RunFacts:
    """Return ``facts`` with the framework that the keys of ``line`` identify, if the source names none."""
    framework = None if facts.framework else written_by(line)
    if framework is None or framework.of_trl:
        return facts
    family = family_of(framework, line)
    return replace(facts, framework=framework.name, algorithm=facts.algorithm or family, judged_as=family)


def _has_number(values: Mapping[str, Any]) -> bool:
    return any(not isinstance(read(value), Unreadable) for value in values.values())


def _is_actor() -> bool:
    """Return True in an actor of Ray, at whose end nothing of ours is called."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
