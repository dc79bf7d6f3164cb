"""FastAPI application that serves a snapshot. The only file that imports fastapi.

Requests are answered on the event loop, without a thread pool: no thread can be started while the interpreter shuts
down, which is when the final state is fetched.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import fastapi
from fastapi import FastAPI, Request, Response

from rlexporter.catalog import NAMED
from rlexporter.endpoint import pages
from rlexporter.endpoint.auth import METHODS
from rlexporter.endpoint.scrapers import Fetch, Fetches
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus

VERSION = fastapi.__version__

_KEPT_SECONDS = 1.0
_MOST_KEPT = 8
_MOST_NAMES = 100
_AGENT_LENGTH = 128
_COUNT = Series(NAMED["rlexporter_scrapes_total"])
_CLOCK = Series(NAMED["rlexporter_time_seconds"])


@dataclass(frozen=True)
class Scrape:
    """The body of a scrape, with the snapshot and the time that it was made of."""

    snapshot: Snapshot
    time: float
    body: bytes
    content_type: str

    @cached_property
    def zipped(self) -> bytes:
        """Return the body, compressed."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


class Scrapes:
    """Cache of scrapes. While the snapshot does not change, one per second and format is encoded for all scrapers."""

    def __init__(self, snapshot: Callable[[], Snapshot], fetches: Fetches) -> None:
        self._snapshot = snapshot
        self._fetches = fetches
        self._kept: dict[str, Scrape] = {}

    def get(self, accept: str, names: Sequence[str]) -> Scrape:
        """Return the scrape for the Accept header ``accept``, limited to the series ``names`` if any."""
        now, moment = self._snapshot(), time.monotonic()
        accept, content_type = _negotiated(accept)
        if names:
            return self._made(now, moment, accept, names)
        found = self._kept.get(content_type)
        if found is None or found.snapshot is not now or moment - found.time > _KEPT_SECONDS:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[content_type] = self._made(now, moment, accept, names)
        return found

    def _made(self, now: Snapshot, moment: float, accept: str, names: Sequence[str]) -> Scrape:
        own = {_COUNT: float(self._fetches.total), _CLOCK: time.time()}
        full = replace(now, samples={**now.samples, **own})
        body, content_type = prometheus.encode(full, accept, names)
        return Scrape(now, moment, body, content_type)


def application(snapshot: Callable[[], Snapshot], fetches: Fetches, failed: Callable[[Exception], None]) -> FastAPI:
    """Return the application. ``failed`` gets every error in an answer; the answer itself does not show it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    scrapes = Scrapes(snapshot, fetches)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        failed(error)
        return Response("This failed; the log of the training says why.\n", 500, media_type="text/plain")

    @app.api_route("/metrics", methods=[*METHODS])
    async def metrics(request: Request) -> Response:
        names = request.query_params.getlist("name[]")
        if len(names) > _MOST_NAMES:
            return Response(f"at most {_MOST_NAMES} times name[]\n", 400, media_type="text/plain")
        peer = request.client
        agent = request.headers.get("user-agent", "")[:_AGENT_LENGTH]
        fetches.add(Fetch(time.monotonic(), peer.host if peer else "", peer.port if peer else 0, agent))
        found = scrapes.get(request.headers.get("accept", ""), names)
        headers = {"Content-Type": found.content_type, "Vary": "Accept, Accept-Encoding"}
        if _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(found.zipped, headers={**headers, "Content-Encoding": "gzip"})
        return Response(found.body, headers=headers)

    @app.api_route("/livez", methods=[*METHODS])
    @app.api_route("/readyz", methods=[*METHODS])
    async def health() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.api_route("/", methods=[*METHODS])
    async def index() -> Response:
        return Response(pages.page(snapshot()), media_type="text/html")

    return app


def _negotiated(accept: str) -> tuple[str, str]:
    """Return ``accept``, emptied if it cannot be understood, and the Content-Type of its answer."""
    try:
        return accept, prometheus.encode(Snapshot(), accept)[1]
    except (TypeError, ValueError):  # prometheus_client cannot compare a version such as `1.x`
        return "", prometheus.encode(Snapshot(), "")[1]


def _takes_gzip(accept_encoding: str) -> bool:
    wanted = [part.replace(" ", "").lower() for part in accept_encoding.split(",")]
    return any(part.split(";")[0] == "gzip" and not part.endswith((";q=0", ";q=0.0")) for part in wanted)
