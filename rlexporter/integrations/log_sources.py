"""The sources of log lines in this process, and the one of them that feeds its run.

A line often passes several loggers: verl's `Tracking` calls `wandb.log` and `add_scalar`, `Accelerator.log` calls its
trackers. A watched call made inside another watched call is therefore ignored. Of loggers that are called one after
the other, only one feeds: the first in the order of `RLEXPORTER_FROM` that has logged a number. Where a trainer has a
callback of ours, or the script an `Exporter`, that one feeds and no logger does.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlexporter.exporter import Exporter, linger, serving
from rlexporter.frameworks.common import Feed
from rlexporter.frameworks.known import family_of, written_by
from rlexporter.integrations.logged_run import LoggedRun
from rlexporter.model.errors import SetupError
from rlexporter.model.step import RunFacts
from rlexporter.model.values import Unreadable, read

logger = logging.getLogger("rlexporter")


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
        if self._is_fed_otherwise():
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

    def _is_fed_otherwise(self) -> bool:
        """Return True if a trainer of this process has a callback of ours, or the script an exporter."""
        callback = sys.modules.get("rlexporter.integrations.callback")  # imports transformers, so not imported here
        if callback is not None and callback.made:
            return True
        return any(exporter not in self._opened for exporter in serving())

    def _open(self, source: str, facts: Callable[[], RunFacts], chosen: bool) -> None:
        try:
            exporter = Exporter()
            known = facts() if chosen or exporter.run.rank == 0 else None
        except Exception as error:  # the boundary: the script knows nothing of us
            logger.warning("rlexporter does not read what %s logs: %s", source, error, exc_info=_trace(error))
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


def _trace(error: Exception) -> Exception | None:
    return None if isinstance(error, SetupError) else error


def _is_actor() -> bool:
    """Return True in an actor of Ray, at whose end nothing of ours is called."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
