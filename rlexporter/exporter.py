"""The exporter: a run and the endpoint that serves it, from `start` to the end of the process."""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlexporter.config.settings import Settings
from rlexporter.model.errors import SetupError
from rlexporter.model.installed import ENDPOINT, needed_by
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.run import shutdown
from rlexporter.run.run import Run
from rlexporter.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlexporter.config.arguments import SettingArguments
    from rlexporter.endpoint.endpoint import Server
    from rlexporter.outputs.periodic import Ticker

_HURRY_SECONDS = {RunState.FAILED: 1.0, RunState.PREEMPTED: 4.0}
"""What the last push and the like may take where others wait for this process to end, or it is killed soon."""


class Exporter:
    """Serves one run to Prometheus: ``with Exporter(run="my-run", algorithm="ppo") as exporter: ...``

    As a context manager it starts, and at the end of the block notes how the run ended; the final state then stays
    up until it was scraped, at most ``linger`` seconds. The README describes the settings.

    `log`, `observe` and `end` belong to the thread that trains. They never raise: errors of our own are counted in
    ``rlexporter_errors_total`` and logged once a kind.

    Raises:
        SetupError: a setting is unknown or unusable.
    """

    def __init__(self, **settings: Unpack[SettingArguments]) -> None:
        self.run = Run(Settings.load(settings), begins=self._come_back, changed=self._wake_outlets)
        """The run that is served: what adapters feed."""
        self._server: Server | None = None
        self._outlets: list[Ticker] = []
        self._displaced = False
        self._ending = _Ending(self)

    @property
    def name(self) -> str:
        """The name of the run, the label ``run`` of every series."""
        return self.run.name

    @property
    def state(self) -> RunState:
        """The state that the run is in."""
        return self.run.state

    @property
    def snapshot(self) -> Snapshot:
        """What is known of the run now. It never changes; a later look gives another one."""
        return self.run.store.snapshot

    @property
    def port(self) -> int | None:
        """The port that is listened on; None where nothing is served."""
        return self._server.port if self._server else None

    @property
    def url(self) -> str | None:
        """Where a browser on this machine finds the exporter; None where nothing is served."""
        return self._server.url if self._server else None

    def log(self, stats: Mapping[str, object], *, step: int | None = None) -> None:
        """Serve a log line.

        ``stats``: keys as TRL logs them, or others, with numbers, None, NaN, arrays or tensors; it is read, not kept.
        ``step``: the step that it belongs to; without one each line that is no evaluation is a step.
        """
        self.run.log(stats, step)

    def observe(self, name: str, values: Any, mask: Any = None, **labels: str) -> None:
        """Count values in the histogram ``name``: ``policy_ratio`` for ``rl_policy_ratio_dist``.

        ``values``: a tensor or array of any shape; ``mask``: which of them count, of a shape that broadcasts to it;
        ``labels``: those of the histogram, if it has any. A tensor on a GPU is counted there, and served with the next
        log line. A name that is unknown is logged, with the names that are close.
        """
        self.run.sink.observe_at_once(name, values, mask, **labels)

    def end(self, error: BaseException | None = None) -> None:
        """Note that the run has ended: by itself, by Ctrl-C or sys.exit (stopped), or by another exception (failed)."""
        self.run.end(error)

    def start(self, *, fallback: bool = False) -> Exporter:
        """Serve, on rank 0 and on the others where that was asked for; twice is once. Returns the exporter.

        An earlier exporter of this process on the same port gives way, unless its training is under way. With
        ``fallback`` a taken port is left for the next free one, and a file to write that cannot be had is only logged.
        What guards the endpoint is never left out. A start that raises leaves no thread and no open file behind.

        Raises:
            SetupError: the address, or a file that is needed, cannot be had.
        """
        run = self.run
        if self._server is not None or not run.serves:
            return self
        with needed_by("the endpoint", ENDPOINT):
            from rlexporter.endpoint import auth, endpoint
            from rlexporter.outputs import prometheus

        guards = auth.guards(run.settings, lambda error: run.failed("auth", error))
        port = run.settings.port and run.settings.port + run.local_rank
        sock = endpoint.claim(run.settings.host, port, free=_free, fallback=fallback)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            if run.sink.recorder is None:  # one that is there was begun by an earlier start, and goes on
                undo.callback(run.stop_recording)
            undo.callback(self._close_outlets)
            self._open_outlets(sock.getsockname()[1], fallback)
            server = endpoint.Server(sock, run.current, lambda error: run.failed("scrape", error), guards)
            undo.callback(server.close)
            server.start()
            undo.pop_all()
        self._server = server
        versions = (__version__, platform.python_version(), prometheus.VERSION, endpoint.VERSION)
        run.store.change(lambda builder: builder.set("rlexporter_build_info", 1.0, *versions))
        self._displaced = False
        shutdown.register(self._ending)
        rank = f", rank {run.rank}," if run.world_size > 1 else ""
        shutdown.say(f"serving run {run.name}{rank} on {self.url}/metrics")
        return self

    def close(self) -> None:
        """Stop serving now, whoever is still waiting for the final state. `start` serves again."""
        self._stop()
        self._displaced = False
        self.run.close()

    def __enter__(self) -> Exporter:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)
        if self._ending.patience() > 0:
            threading.Thread(target=self._linger, name="rlexporter-linger", daemon=True).start()
        else:
            self.close()

    def _linger(self) -> None:
        shutdown.wait([self._ending])
        self.close()

    def _give_way(self) -> None:
        """Leave the port to a newer exporter of this process; a training that begins later gets another one."""
        self._stop()
        self._displaced = True

    def _come_back(self) -> None:
        if self._displaced:
            self.start(fallback=True)

    @property
    def _peers_wait(self) -> bool:
        return self.run.world_size > 1 and self.state is RunState.FAILED

    def _wake_outlets(self) -> None:
        for outlet in self._outlets:
            outlet.wake()

    def _open_outlets(self, port: int, fallback: bool) -> None:
        """Open whatever leaves this process by another way than the endpoint."""
        from rlexporter.outputs import enabled

        run = self.run
        makers: list[tuple[str, Callable[[], Ticker | None]]] = [("record", run.record), *enabled.wanted(run, port)]
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
            self.run.failed(where, error)
            return None

    def _close_outlets(self) -> None:
        outlets, self._outlets = self._outlets, []
        hurries = self._peers_wait or self.state is RunState.PREEMPTED
        for outlet in outlets:
            outlet.close(_HURRY_SECONDS[self.state] if hurries else None)

    def _stop(self) -> None:
        shutdown.unregister(self._ending)
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._close_outlets()


class _Ending:
    """What happens to an exporter when its process ends: an `Ending`."""

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter

    def exit(self, error: BaseException | None) -> None:
        self.exporter.run.exit(error)

    def preempt(self) -> None:
        self.exporter.run.preempt()

    def patience(self) -> float:
        """Return the seconds to wait at most for scrapers that have not fetched the final state, 0 without any.

        A rank that has failed ends at once: the others wait for it in a collective, and whoever launched them for its
        end.
        """
        exporter = self.exporter
        if exporter._server is None or exporter._peers_wait:
            return 0.0
        return exporter._server.patience(exporter.run.sink.changed_at, exporter.run.settings.linger)

    def close(self) -> None:
        self.exporter.close()

    def abandon(self) -> None:
        """Let go of the port, in a forked child."""
        server, self.exporter._server = self.exporter._server, None
        self.exporter._outlets = []
        self.exporter.run.abandon()
        if server is not None:
            server.abandon()


def _free(port: int) -> str:
    """Free a port that an exporter of this process holds; returns who holds it where that cannot be."""
    for other in shutdown.live():
        if isinstance(other, _Ending) and other.exporter.port == port:
            if other.exporter.run.training:
                return f"the exporter of run {other.exporter.name}, which is training in this process"
            other.exporter._give_way()
    return ""
