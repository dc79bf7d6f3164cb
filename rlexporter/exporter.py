"""The exporter: a run and the endpoint that serves it, from `start` to the end of the process."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rlexporter.config.parsers import ON
from rlexporter.config.settings import Settings
from rlexporter.model.errors import ENDPOINT, SetupError, needed_by
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.run import shutdown
from rlexporter.run.run import Run
from rlexporter.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlexporter.config.arguments import SettingArguments
    from rlexporter.endpoint.auth import Guards
    from rlexporter.endpoint.connections import Listener
    from rlexporter.endpoint.endpoint import Server
    from rlexporter.model.sink import TrainedRun
    from rlexporter.model.step import RunFacts
    from rlexporter.outputs.periodic import Ticker
    from rlexporter.status.earlier import EarlierRun

logger = logging.getLogger("rlexporter")

_Made = TypeVar("_Made")

_HURRY_SECONDS = {RunState.FAILED: 1.0, RunState.PREEMPTED: 4.0}
"""The seconds for the last push when others wait for this process, or it will be killed soon. A message has more."""
_PEERS_WAIT_SECONDS = 30.0
"""The most seconds that a rank that has failed lets the others wait for its last scrape."""


class Exporter:
    """Serves one run to Prometheus: ``with Exporter(run="my-run", algorithm="ppo") as exporter: ...``

    As a context manager it starts, and at the end of the block notes how the run ended; the final state then stays
    up until it was scraped, at most ``linger`` seconds. docs/settings.md describes the settings.

    `log`, `observe` and `end` belong to the thread that trains. They never raise, but for a mistyped name before the
    first step: errors of our own are counted in ``rlexporter_errors_total`` and logged once a kind.

    Raises:
        SetupError: a setting is unknown or unusable.
    """

    def __init__(self, **settings: Unpack[SettingArguments]) -> None:
        self._outlets: list[Ticker] = []
        self._run = Run(Settings.load(settings), begins=self._begins, urgent=self._wake_outlets, ended=self._keep_page)
        self._server: Server | None = None
        self._displaced = False
        self._owes_page = False
        """True from the begin of a training until the page of its end is kept."""
        self._closes = threading.RLock()
        """Held by the thread that closes."""
        self._ending = shutdown.Ending(
            self, self._run.exit, self._run.preempt, self._patience, self.close, self._abandon
        )

    @property
    def run(self) -> TrainedRun:
        """Return the run as the adapter of a trainer sees it: ``begin``, ``end``, and the ``sink`` of what it sees.

        `rlexporter.model.sink` describes it, for adapters of other trainers.
        """
        return self._run

    @property
    def name(self) -> str:
        """Return the name of the run, the label ``run`` of every series."""
        return self._run.name

    @property
    def state(self) -> RunState:
        """Return the state of the run."""
        return self._run.state

    @property
    def should_stop(self) -> bool:
        """Return True once `on_critical` has stopped the run: for a loop of one's own to ask after each step.

        With legacy PPO all ranks get the same answer; elsewhere it is that of this process.
        """
        return self._run.brake.stops

    @property
    def snapshot(self) -> Snapshot:
        """Return what is served now; a snapshot never changes, later calls return newer ones. For any thread."""
        return self._run.current()

    @property
    def port(self) -> int | None:
        """Return the port of the endpoint; None if nothing is served."""
        return self._server.port if self._server else None

    @property
    def url(self) -> str | None:
        """Return the URL of the endpoint for a browser on this machine; None if nothing is served."""
        return self._server.url if self._server else None

    def log(self, stats: Mapping[str, object], *, step: int | None = None) -> None:
        """Serve a log line.

        ``stats``: keys as TRL logs them, or others, with numbers, None, NaN, arrays or tensors; it is read, not kept.
        ``step``: the step that it belongs to; without it each line is a step unless it is an evaluation.
        """
        self._run.log(stats, step)

    def observe(self, name: str, values: Any, mask: Any = None, **labels: str) -> None:
        """Count values in the histogram ``name``: ``policy_ratio`` for ``rl_policy_ratio_dist``.

        ``values``: a tensor or array of any shape; ``mask``: which of them count, of a shape that broadcasts to it;
        ``labels``: those of the histogram, if it has any. A tensor on a GPU is counted there, and served with the next
        log line. docs/metrics.md lists the names. A name that no histogram has is counted and logged as an error.

        Raises:
            SetupError: no histogram has this name or these labels, and no step was logged yet (a loop of your own).
        """
        self._run.observe(name, values, mask, **labels)

    def end(self, error: BaseException | None = None) -> None:
        """Note that the run has ended: by itself, by Ctrl-C or sys.exit (stopped), or by another exception (failed)."""
        self._run.end(error)

    def start(self, *, fallback: bool = False) -> Exporter:
        """Serve on rank 0, and on others if the settings ask for it; return the exporter. A second call does nothing.

        An earlier exporter of this process on the same port gives way, unless its training is under way. With
        ``fallback`` a taken port is replaced by the next free one, and an output that cannot be opened is only logged;
        authentication and TLS are never left out. A start that raises leaves no thread and no open file behind.

        Raises:
            SetupError: the address, or a file that is needed, is not available.
        """
        run = self._run
        if self._server is not None or not run.serves:
            return self
        with needed_by("the endpoint", ENDPOINT):
            from rlexporter.endpoint import app, auth, endpoint
            from rlexporter.outputs import prometheus
        from rlexporter.status import page

        file = run.settings.compare  # the page of a run to compare this one with
        earlier = self._made("compare", lambda: page.read(Path(file)), fallback) if file not in ("", ON) else None
        guards = auth.guards(run.settings, partial(run.errors.add, "auth"))
        port = run.settings.port and run.settings.port + run.local_rank
        sock = endpoint.claim(run.settings.host, port, free=_free, fallback=fallback)
        try:
            server = self._opened(sock, guards, fallback)
        except RuntimeError as error:  # what threading raises
            raise SetupError(f"cannot serve: {error}; this process may start no more threads (ulimit -u)") from error
        self._server, run.note = server, server.note
        server.history.earlier = earlier
        versions = (__version__, platform.python_version(), prometheus.VERSION, app.VERSION)
        run.feed.change(lambda builder: builder.set("rlexporter_build_info", 1.0, *versions))
        self._displaced = False
        shutdown.register(self._ending)
        what = [f"run {run.known_as}"] if run.known_as else []
        what += [f"rank {run.rank}"] if run.world_size > 1 else []
        shutdown.say(f"serving {', '.join(what)}{' ' if what else ''}on {self.url}/ (Prometheus scrapes /metrics)")
        return self

    def _opened(self, sock: Listener, guards: Guards, fallback: bool) -> Server:
        """Open everything that serves, and return the server on ``sock``; nothing stays open if this raises."""
        from rlexporter.endpoint import endpoint

        run = self._run
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            if run.feed.recorder is None:  # else an earlier start began it, and it goes on
                undo.callback(run.stop_recording)
            undo.callback(self._close_outlets)
            self._open_outlets(sock.getsockname()[1], fallback)
            steps = run.feed.keep_steps()
            server = endpoint.Server(
                sock, run.current, partial(run.errors.add, "scrape"), guards, steps, run.completions
            )
            undo.callback(server.close)
            server.start()
            undo.pop_all()
        return server

    def close(self) -> None:
        """Stop serving now, even if scrapers have not seen the final state. `start` serves again.

        Whoever calls this while another thread closes waits until that is done.
        """
        with self._closing():
            self._stop()
            self._displaced = False
            self._run.close()

    def __repr__(self) -> str:
        return f"<Exporter of run {self.name}, {self.state.value}{f', on {self.url}/' if self.url else ''}>"

    def _repr_html_(self) -> str | None:
        """Return a small card of the run as it is now, for a notebook; None if no output draws one."""
        from rlexporter.outputs import CARDS
        from rlexporter.status import document
        from rlexporter.status.history import History

        history = self._server.history if self._server else History()
        now = document.status(self._run.current(), history, time.time())
        return next((import_module(module).card(now, self.url) for module in CARDS), None)

    def __enter__(self) -> Exporter:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)
        if self._patience() > 0:
            threading.Thread(target=linger, args=(self,), name="rlexporter-linger", daemon=True).start()
        else:
            self.close()

    def _give_way(self) -> None:
        """Leave the port to a newer exporter of this process; a training that begins later gets another one."""
        with self._closing():
            self._stop()
            self._displaced = True
            if self.state.over:
                self._run.stop_recording()

    def _begins(self, facts: RunFacts) -> None:
        self._owes_page = self._run.settings.report
        if self._displaced:
            self.start(fallback=True)
        if self._server is not None and self._run.settings.compare == ON:
            self._server.history.earlier = _before(facts.output_dir) if facts.output_dir else None

    def _keep_page(self, server: Server | None = None) -> None:
        """Keep the page of a training that has ended beside its checkpoints, once, and tell its verdict."""
        run, server = self._run, server or self._server
        if server is None or not self._owes_page or not run.state.over or run.rank != 0:
            return
        self._owes_page, folder = False, run.output_dir
        if not folder or not os.path.isdir(folder) or not self.snapshot.value("rl_steps_total"):
            return
        with run.errors.guard("event"), shutdown.holding(self._ending):
            from rlexporter.status import page

            try:
                server.note()  # the last step too
                said = page.keep(folder, self.snapshot, server.history, run.clock())
            except OSError as error:
                logger.info("the page of the run is not kept: %s", error)
            else:
                shutdown.say(said)

    @property
    def _peers_wait(self) -> bool:
        return self._run.world_size > 1 and self.state is RunState.FAILED

    def _wake_outlets(self) -> None:
        for outlet in self._outlets:
            outlet.wake()

    def _open_outlets(self, port: int, fallback: bool) -> None:
        """Open the recording and every output other than the endpoint."""
        from rlexporter.outputs import wanted

        run = self._run
        makers: list[tuple[str, Callable[[], Ticker | None]]] = [("record", run.record), *wanted(run, port)]
        for where, make in makers:
            made = self._made(where, make, fallback)
            self._outlets += [made] if made is not None else []
        for outlet in self._outlets:
            outlet.start()

    def _made(self, where: str, make: Callable[[], _Made | None], fallback: bool) -> _Made | None:
        try:
            return make()
        except SetupError as error:
            if not fallback:
                raise
            self._run.errors.add(where, error)
            return None

    def _close_outlets(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Have all outlets do their last at once, and wait for them."""
        outlets, self._outlets = self._outlets, []
        hurries = self._peers_wait or self.state is RunState.PREEMPTED
        for outlet in outlets:
            outlet.stop(_HURRY_SECONDS[self.state] if hurries else None)
        meanwhile()
        for outlet in outlets:
            outlet.close()

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        with shutdown.closing(self._ending), self._closes:
            yield

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._run.note = lambda: None
            server.close()
        self._close_outlets(partial(self._keep_page, server))

    def _patience(self) -> float:
        """Return the most seconds to wait for scrapers that have not fetched the final state; 0 if there are none.

        A rank that has failed waits less: the other ranks wait for it in a collective, and the launcher for its end.
        """
        server, run, hurries = self._server, self._run, self._peers_wait
        if server is None:
            return 0.0
        from rlexporter.endpoint.scrapers import patience

        limit = min(run.settings.linger, _PEERS_WAIT_SECONDS) if hurries else run.settings.linger
        final = run.feed.changed_at
        return patience(server.fetches.scrapers(final), final, time.monotonic(), limit, hurries=hurries)

    def _abandon(self) -> None:
        """Let go of the port, in a forked child."""
        server, self._server = self._server, None
        self._outlets = []
        self._closes = threading.RLock()
        self._run.abandon()
        if server is not None:
            server.abandon()


def serving() -> list[Exporter]:
    """Return the exporters of this process that have been started and not closed."""
    return [ending.of for ending in shutdown.live()]


def linger(exporter: Exporter) -> None:
    """Serve the final state until it has been scraped, as at exit, and close: for a process that will be killed.

    This waits at most as long as the setting ``linger`` says, and not at all where no scraper was seen lately.
    """
    shutdown.wait([exporter._ending])
    exporter.close()


def _before(folder: str) -> EarlierRun | None:
    """Return the run whose page is kept in ``folder``; None where there is none that can be read."""
    from rlexporter.status import page

    try:
        return page.read(Path(folder) / page.PAGE_FILE)
    except SetupError:
        return None


def _free(port: int) -> str:
    """Free ``port`` if an exporter of this process holds it; return the holder if that is impossible, else ""."""
    for other in serving():
        if other.port == port:
            if other._run.training:
                return f"the exporter of run {other.name}, which is training in this process"
            other._give_way()
    return ""
