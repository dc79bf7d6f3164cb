"""The endpoint: a FastAPI application that serves the snapshot, in a uvicorn server on a thread of its own.

The only file that imports fastapi and uvicorn. Requests are answered on the event loop, without a thread pool: new
threads cannot be started while the interpreter shuts down, which is when the final state is fetched.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import fastapi
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.middleware.gzip import GZipMiddleware

from rlexporter.catalog import NAMED
from rlexporter.model import Series, SetupError, Snapshot
from rlexporter.outputs import landing, prometheus
from rlexporter.outputs.door import NO_GUARDS, Guards
from rlexporter.outputs.scrapers import Fetch, Fetches, patience, pending

VERSION = fastapi.__version__
logger = logging.getLogger("rlexporter")

_KEEP_ALIVE_SECONDS = 130
"""Longer than the longest usual scrape interval (a minute): a kept connection tells two equal scrapers apart."""

_PORTS_TRIED = 20
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_METHODS = ["GET", "HEAD"]


def claim(host: str, port: int, *, free: Callable[[int], str], fallback: bool) -> socket.socket:
    """A listening socket on this address.

    ``free`` is asked to free a taken port, and says who holds it where it cannot. With ``fallback`` one of the next
    ports is taken instead. Raises SetupError that says what to change.
    """
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
        "RLEXPORTER_LISTEN_PORT), or 0 for a free one"
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


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


def application(snapshot: Callable[[], Snapshot], fetches: Fetches, failed: Callable[[Exception], None]) -> FastAPI:
    """The application. ``failed`` hears of every error in an answer."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=1024)

    @app.api_route("/metrics", methods=_METHODS)
    async def metrics(request: Request) -> Response:
        peer = request.client
        agent = request.headers.get("user-agent", "")
        fetches.add(Fetch(time.monotonic(), peer.host if peer else "", peer.port if peer else 0, agent))
        try:
            counted = Series(NAMED["rlexporter_scrapes_total"])
            now = snapshot()
            now = replace(now, samples={**now.samples, counted: float(fetches.total)})
            names = request.query_params.getlist("name[]")
            body, content_type = prometheus.encode(now, request.headers.get("accept", ""), names)
        except Exception as error:  # noqa: BLE001 - a scrape that fails must say so and leave the next one to work
            failed(error)
            return Response(f"rlexporter could not render its metrics: {error}\n", 500, media_type="text/plain")
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    @app.api_route("/livez", methods=_METHODS)
    @app.api_route("/readyz", methods=_METHODS)
    async def health() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.api_route("/", methods=_METHODS)
    async def index() -> Response:
        return Response(landing.page(snapshot()), media_type="text/html")

    return app


class Server:
    """Serves one snapshot source on one listening socket until it is closed."""

    def __init__(
        self,
        sock: socket.socket,
        snapshot: Callable[[], Snapshot],
        failed: Callable[[Exception], None],
        guards: Guards = NO_GUARDS,
    ) -> None:
        self.fetches = Fetches()
        self.host, self.port = sock.getsockname()[:2]
        self.url = f"http://{_reachable(self.host)}:{self.port}"
        self._socket = sock
        config = uvicorn.Config(
            application(snapshot, self.fetches, failed),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._server.run, args=([sock],), name=f"rlexporter-http-{self.port}", daemon=True)

    def start(self) -> None:
        """Return once requests are answered. Raises SetupError where the thread does not come up."""
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise SetupError(f"the endpoint on {self.host}:{self.port} did not start")
            time.sleep(0.005)

    def patience(self, final: float, limit: float) -> float:
        """Seconds to wait at most for the scrapers that have not come since ``final`` (monotonic clock)."""
        waiting = pending(self.fetches.scrapers(time.monotonic()), final)
        return patience(waiting, limit)

    def close(self) -> None:
        """Stop answering and free the port; returns when the thread has ended."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child, which has the socket but not the thread: let go of the port."""
        self._socket.close()


def _reachable(host: str) -> str:
    """The address under which this machine finds itself when it listens on ``host``."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{own}]" if ":" in own else own
