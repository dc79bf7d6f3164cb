"""The exporter: a run and the endpoint that serves it, from `start` to the end of the process."""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlexporter.config.settings import MAIN, Settings
from rlexporter.model.installed import ENDPOINT, needed_by
from rlexporter.model.metric import RunState, SetupError, Snapshot
from rlexporter.model.sink import RunFacts
from rlexporter.run import rank_view as ranks
from rlexporter.run import shutdown as process
from rlexporter.run.run import Run
from rlexporter.version import __version__

if TYPE_CHECKING:
    from rlexporter.endpoint.endpoint import Server
    from rlexporter.outputs.periodic import Ticker

_HURRY_SECONDS = {RunState.FAILED: 1.0, RunState.PREEMPTED: 4.0}
"""What the last push and the like may take where others wait for this process to end, or it is killed soon."""


class Exporter(Run):
    """Serves one run to Prometheus: ``with Exporter(run="my-run", algorithm="ppo") as exporter: ...``

    As a context manager it starts, and at the end of the block notes how the run ended; the final state then stays
    up until it was scraped, at most ``linger`` seconds. Settings are those of `rlexporter.config.settings`, by name.
    Raises SetupError for a setting that is unknown or unusable.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(Settings.load(settings))
        self._server: Server | None = None
        self._outlets: list[Ticker] = []
        self._displaced = False
        self._shown: tuple[Snapshot, Snapshot] | None = None
        """What is known, and the part of it that is this rank's own, which stays the same as long as that does."""

    @property
    def port(self) -> int | None:
        """The port that is listened on; None where nothing is served."""
        return self._server.port if self._server else None

    @property
    def url(self) -> str | None:
        """Where a browser on this machine finds the exporter; None where nothing is served."""
        return self._server.url if self._server else None

    @property
    def serves(self) -> bool:
        """Whether this rank serves: rank 0, or each one where that was asked for."""
        return self.rank == 0 or self.settings.ranks != MAIN

    def current(self) -> Snapshot:
        """What is served now: of a rank other than 0 what it sees itself. For any thread."""
        found = super().current()
        if self.rank == 0:
            return found
        if self._shown is None or self._shown[0] is not found:
            self._shown = (found, ranks.own(found, self.settings.ranks))
        return self._shown[1]

    def start(self, *, fallback: bool = False) -> Exporter:
        """Serve, on rank 0 and on the others where that was asked for; twice is once.

        An earlier exporter of this process on the same port gives way, unless its training is under way. Raises
        SetupError where the address cannot be had, or a file that is needed; with ``fallback`` a taken port is left
        for the next free one, and a file to write that cannot be had is only logged. What guards the endpoint is
        never left out. A start that raises leaves no thread and no open file behind.
        """
        if self._server is not None or not self.serves:
            return self
        with needed_by("the endpoint", ENDPOINT):
            from rlexporter.endpoint import auth as door
            from rlexporter.endpoint import endpoint as http
            from rlexporter.outputs import prometheus

        guards = door.guards(self.settings, lambda error: self.failed("door", error))
        port = self.settings.port and self.settings.port + self.local_rank
        sock = http.claim(self.settings.host, port, free=_free, fallback=fallback)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            if self._recorder is None:  # one that is there was begun by an earlier start, and goes on
                undo.callback(self._stop_recording)
            undo.callback(self._close_outlets)
            self._open_outlets(sock.getsockname()[1], fallback)
            server = http.Server(sock, self.current, lambda error: self.failed("scrape", error), guards)
            undo.callback(server.close)
            server.start()
            undo.pop_all()
        self._server = server
        versions = (__version__, platform.python_version(), prometheus.VERSION, http.VERSION)
        self.store.change(lambda draft: draft.set("rlexporter_build_info", 1.0, *versions))
        self._displaced = False
        process.register(self)
        process.say(f"serving {self._called} on {self.url}/metrics")
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
        """Seconds to wait at most for scrapers that have not fetched the final state; 0 where there are none.

        A rank that has failed ends at once: the others wait for it in a collective, and whoever launched them for its
        end.
        """
        if self._server is None or self._peers_wait:
            return 0.0
        return self._server.patience(self._last_change, self.settings.linger)

    def abandon(self) -> None:
        """In a forked child: let go of the port. What the child logs stays in the child."""
        server, self._server = self._server, None
        self._outlets = []
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

    @property
    def _called(self) -> str:
        return f"run {self.name}" + (f", rank {self.rank}," if self.world_size > 1 else "")

    @property
    def _peers_wait(self) -> bool:
        return self.world_size > 1 and self.state is RunState.FAILED

    def _enter(self, state: RunState, exception: str = "") -> None:
        super()._enter(state, exception)
        for outlet in self._outlets:
            outlet.wake()

    def _open_outlets(self, port: int, fallback: bool) -> None:
        """Whatever leaves this process by another way than the endpoint."""
        from rlexporter.outputs import enabled as outlets

        makers: list[tuple[str, Callable[[], Ticker | None]]] = [("record", self.record), *outlets.wanted(self, port)]
        for where, make in makers:
            made = self._made(where, make, fallback)
            self._outlets += [made] if made is not None else []
        for outlet in self._outlets:
            outlet.start()

    def _made(self, where: str, make: Callable[[], Ticker | None], fallback: bool) -> Ticker | None:
        try:
            return make()
        except SetupError as error:
            if not fallback:
                raise
            self.failed(where, error)
            return None

    def _close_outlets(self) -> None:
        outlets, self._outlets = self._outlets, []
        hurries = self._peers_wait or self.state is RunState.PREEMPTED
        for outlet in outlets:
            outlet.close(_HURRY_SECONDS[self.state] if hurries else None)

    def _stop(self) -> None:
        process.unregister(self)
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._close_outlets()


def _free(port: int) -> str:
    """Free a port that an exporter of this process holds; who holds it where that cannot be."""
    for other in process.live():
        if isinstance(other, Exporter) and other.port == port:
            if other.training:
                return f"the exporter of run {other.name}, which is training in this process"
            other.give_way()
    return ""
