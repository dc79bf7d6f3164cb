"""The exporter: a run and the endpoint that serves it, from `start` to the end of the process."""

from __future__ import annotations

import platform
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlexporter import process
from rlexporter.config import Settings
from rlexporter.feed import RunFacts
from rlexporter.model import SetupError
from rlexporter.run import Run
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.outputs.http import Server


class Exporter(Run):
    """Serves one run to Prometheus: ``with Exporter(run="my-run", algorithm="ppo") as exporter: ...``

    As a context manager it starts, and at the end of the block notes how the run ended; the final state then stays
    up until it was scraped, at most ``linger`` seconds. Settings are those of `rlexporter.config.Settings`, by name.
    Raises SetupError for a setting that is unknown or unusable.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(Settings.load(settings))
        self._server: Server | None = None
        self._displaced = False

    @property
    def port(self) -> int | None:
        """The port that is listened on; None where nothing is served."""
        return self._server.port if self._server else None

    @property
    def url(self) -> str | None:
        """Where a browser on this machine finds the exporter; None where nothing is served."""
        return self._server.url if self._server else None

    def start(self, *, fallback: bool = False) -> Exporter:
        """Serve, on rank 0; twice is once.

        An earlier exporter of this process on the same port gives way, unless its training is under way. Raises
        SetupError where the address cannot be had, or the file to record to; with ``fallback`` a taken port is left
        for the next free one, and a file that cannot be had is only logged.
        """
        if self._server is not None or self.settings.rank != 0:
            return self
        from rlexporter.outputs import http, prometheus

        sock = http.claim(self.settings.host, self.settings.port, free=_free, fallback=fallback)
        try:
            self.record()
        except SetupError as error:
            if not fallback:
                sock.close()
                raise
            self.failed("record", error)
        self._server = http.Server(sock, self.current, lambda error: self.failed("scrape", error))
        self._server.start()
        versions = (__version__, platform.python_version(), prometheus.VERSION, http.VERSION)
        self.store.change(lambda draft: draft.set("rlexporter_build_info", 1.0, *versions))
        self._displaced = False
        process.register(self)
        process.say(f"serving run {self.name} on {self.url}/metrics")
        return self

    def close(self) -> None:
        """Stop serving now, whoever is still waiting for the final state. `start` serves again."""
        self._stop()
        self._displaced = False
        self.release()

    def give_way(self) -> None:
        """Leave the port to a newer exporter of this process; a training that begins later gets another one."""
        self._stop()
        self._displaced = True

    def begin(self, facts: RunFacts) -> None:
        """A training begins now, for the first time or again."""
        with self.guard("event"):
            if self._displaced:
                self.start(fallback=True)
        super().begin(facts)

    def patience(self) -> float:
        """Seconds to wait at most for scrapers that have not fetched the final state; 0 where there are none."""
        if self._server is None:
            return 0.0
        return self._server.patience(self._last_change, self.settings.linger)

    def abandon(self) -> None:
        """In a forked child: let go of the port. What the child logs stays in the child."""
        server, self._server = self._server, None
        self._recorder = None
        self.store.renew_lock()
        if server is not None:
            server.abandon()

    def __enter__(self) -> Exporter:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)
        if self.patience() > 0:
            threading.Thread(target=self._linger, name="rlexporter-linger", daemon=True).start()
        else:
            self.close()

    def _linger(self) -> None:
        process.wait([self])
        self.close()

    def _stop(self) -> None:
        process.unregister(self)
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _free(port: int) -> str:
    """Free a port that an exporter of this process holds; who holds it where that cannot be."""
    for other in process.live():
        if isinstance(other, Exporter) and other.port == port:
            if other.training:
                return f"the exporter of run {other.name}, which is training in this process"
            other.give_way()
    return ""
