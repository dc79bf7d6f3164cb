"""The endpoint: an address, and a server for one snapshot source on it."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread

from rlexporter.endpoint import server
from rlexporter.endpoint.app import Served, application
from rlexporter.endpoint.auth import Authentication, Guards
from rlexporter.endpoint.connections import Listener
from rlexporter.endpoint.scrapers import Fetches
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.periodic import Ticker
from rlexporter.status.completions import Completions
from rlexporter.status.history import History

logger = logging.getLogger("rlexporter")

_PORTS_TRIED = 20
_LAST_PORT = 65535
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_HISTORY_SECONDS = 0.5


def claim(host: str, port: int, *, free: Callable[[int], str], fallback: bool) -> Listener:
    """Return a listening socket on ``host`` and ``port``.

    ``free`` is called to free a taken port, and returns who holds it if it cannot. With ``fallback`` one of the next
    ports is taken instead. Raises SetupError, which says what to change.
    """
    _check(host, port)
    try:
        return _listen(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SetupError(_advice(host, port, error)) from error
    holder = free(port)
    for candidate in (port, *(range(port + 1, port + _PORTS_TRIED) if fallback else ())):
        with contextlib.suppress(OSError, OverflowError):
            sock = _listen(host, candidate)
            if candidate != port:
                logger.warning("port %d is taken; serving on %d", port, candidate)
            return sock
    raise SetupError(
        f"port {port} on {host} is taken by {holder or 'another process'}; choose another (argument port, "
        f"RLEXPORTER_LISTEN_PORT={min(port + 1, _LAST_PORT)}), or 0 for a free one, and let Prometheus scrape that too"
    )


def _check(host: str, port: int) -> None:
    """Raise SetupError for what no system has: a socket that is then not bound would stay open."""
    if port > _LAST_PORT:
        raise SetupError(
            f"there is no port {port}: choose a lower one (argument port, RLEXPORTER_LISTEN_PORT), since each rank of "
            "a machine has the next one"
        )
    try:
        usable = b"\0" not in host.encode("idna")
    except UnicodeError:  # half a surrogate pair, or a part of a name that is too long
        usable = False
    if not usable:
        raise SetupError(f"{host!r:.100} is no address of a machine (argument host, RLEXPORTER_LISTEN_HOST)")


def _listen(host: str, port: int) -> Listener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()  # as with other servers, that is every address of either kind
    return Listener(socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=both))


def _advice(host: str, port: int, error: OSError) -> str:
    unresolved = error.errno is not None and error.errno < 0  # getaddrinfo counts its errors downwards
    if unresolved or error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host!r} is no address of this machine; 127.0.0.1 listens for this machine only, 0.0.0.0 on every "
            "address (argument host, RLEXPORTER_LISTEN_HOST)"
        )
    if isinstance(error, PermissionError):
        return f"this user may not listen on port {port}; choose one above 1023 (argument port, RLEXPORTER_LISTEN_PORT)"
    return f"cannot listen on {host}:{port}: {error}"


class Server:
    """Serves one snapshot source, and its history, on one listening socket until it is closed."""

    def __init__(
        self,
        sock: Listener,
        snapshot: Callable[[], Snapshot],
        failed: Callable[[Exception], None],
        guards: Guards,
        steps: deque[Snapshot],
        completions: Completions | None = None,
    ) -> None:
        """``snapshot`` returns what is served now; ``steps`` are the snapshots since the last `note`."""
        self.fetches = Fetches()
        self.host, self.port = sock.getsockname()[:2]
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # where this machine reaches itself
        self.url = f"{'https' if guards.tls else 'http'}://{f'[{own}]' if ':' in own else own}:{self.port}"
        self._socket = sock
        self._snapshot = snapshot
        self._steps = steps
        self._noting = Lock()
        self.history = History()
        self._watcher = Ticker("history", _HISTORY_SECONDS, self.note, failed)
        served = Served(snapshot, self.history, completions or Completions(0), self.fetches)
        app = Authentication(application(served, failed), guards)
        self._server = server.HTTPServer(app, sock, guards.tls, failed, guarded=guards.token is not None)
        self._thread = Thread(target=self._server.work, name=f"rlexporter-http-{self.port}", daemon=True)

    def start(self) -> None:
        """Start the threads, and return once requests are answered. Raises SetupError if it does not come up."""
        self._watcher.start()
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise SetupError(f"the endpoint on {self.host}:{self.port} did not start")
            time.sleep(0.005)

    def note(self) -> None:
        """Add each step since the last call, and the current snapshot, to the history. Safe on any thread."""
        with self._noting:  # an older snapshot must not be added last
            while self._steps:
                self.history.see(self._steps.popleft())
            self.history.see(self._snapshot())

    def close(self) -> None:
        """Stop answering, free the port, and return when the threads have ended."""
        self._watcher.close()
        self._server.stop()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def abandon(self) -> None:
        """Let go of the port and all connections in a forked child, which has the socket but not the thread."""
        self._socket.connections.close()
        self._socket.close()
