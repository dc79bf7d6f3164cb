"""FastAPI application that serves a snapshot. The only file that imports fastapi.

Requests are answered on the event loop, without a thread pool: no thread can be started while the interpreter shuts
down, which is when the final state is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import fastapi
from fastapi import FastAPI, Request, Response

from rlexporter.catalog import NAMED
from rlexporter.catalog.languages import CODES, code_of
from rlexporter.endpoint.auth import METHODS
from rlexporter.endpoint.bodies import MOST_NAMES, Bodies, Body, Statuses
from rlexporter.endpoint.connections import ONCE_TAKEN
from rlexporter.endpoint.scrapers import Fetch, Fetches
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus
from rlexporter.status.document import MOST_POINTS, POINTS
from rlexporter.status.history import History
from rlexporter.status.page import page

VERSION = fastapi.__version__

_MOST_NAMES = 100
_AGENT_LENGTH = 128
_COUNT = Series(NAMED["rlexporter_scrapes_total"])
_CLOCK = Series(NAMED["rlexporter_time_seconds"])

_TURN_APART_SECONDS = 0.25
"""The time between two turns: an answer takes a few milliseconds of the process that trains."""
_TURN_SOONEST_SECONDS = 2
_TURN_LATEST_SECONDS = 30

_MOST_HEADER_ENTRIES = 20
"""The most entries of a header that are looked at."""


class Scrapes:
    """Scrapes, encoded once per second and format for all scrapers while the snapshot does not change."""

    def __init__(self, snapshot: Callable[[], Snapshot], fetches: Fetches) -> None:
        self._snapshot = snapshot
        self._fetches = fetches
        self._shared = Bodies()

    def get(self, accept: str, names: Sequence[str]) -> Body:
        """Return the scrape for the Accept header ``accept``, limited to the series ``names`` if any."""
        now = self._snapshot()
        accept, content_type = _negotiated(accept)
        if names:
            return self._made(now, accept, names)
        return self._shared.get(content_type, now, lambda: self._made(now, accept, names))

    def _made(self, now: Snapshot, accept: str, names: Sequence[str]) -> Body:
        own = {_COUNT: float(self._fetches.total), _CLOCK: time.time()}
        return Body(*prometheus.encode(replace(now, samples={**now.samples, **own}), accept, names))


def application(
    snapshot: Callable[[], Snapshot], history: History, fetches: Fetches, failed: Callable[[Exception], None]
) -> FastAPI:
    """Return the application. ``failed`` gets every error in an answer; the answer itself does not show it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    scrapes = Scrapes(snapshot, fetches)
    first = Body(page().encode(), "text/html; charset=utf-8")

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
        fetch = Fetch(time.monotonic(), peer.host if peer else "", peer.port if peer else 0, agent)
        fetches.add(fetch)
        request.scope[ONCE_TAKEN] = fetch.take
        return _answer(request, scrapes.get(request.headers.get("accept", ""), names), "Accept, Accept-Encoding")

    @app.api_route("/livez", methods=[*METHODS])
    @app.api_route("/readyz", methods=[*METHODS])
    async def health() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.api_route("/", methods=[*METHODS])
    async def index(request: Request) -> Response:
        return _answer(request, first, "Accept-Encoding")

    _add_api(app, Statuses(snapshot, history))
    return app


def _add_api(app: FastAPI, statuses: Statuses) -> None:
    turns = PageTurns()

    @app.api_route("/api/status", methods=[*METHODS])
    async def status(request: Request) -> Response:
        code = preferred(request.query_params.get("lang"), request.headers.get("accept-language", ""))
        answer = _answer(request, statuses.status(code), "Accept-Language, Accept-Encoding")
        answer.headers["Content-Language"] = code
        answer.headers["Retry-After"] = str(turns.seconds(time.monotonic()))
        return answer

    @app.api_route("/api/history", methods=[*METHODS])
    async def history(request: Request) -> Response:
        names, points = request.query_params.getlist("series"), request.query_params.get("points", str(POINTS))
        if len(names) > MOST_NAMES:
            return Response(f"at most {MOST_NAMES} times series\n", 400, media_type="text/plain")
        if not (points.isdecimal() and points.isascii() and len(points) < 5 and 4 <= int(points) <= MOST_POINTS):
            return Response(f"points is a number from 4 to {MOST_POINTS}\n", 400, media_type="text/plain")
        return _answer(request, statuses.history(tuple(names), int(points)), "Accept-Encoding")


def _answer(request: Request, found: Body, vary: str) -> Response:
    headers = {"Content-Type": found.content_type, "Vary": vary}
    if takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(found.zipped, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.body, headers=headers)


def _negotiated(accept: str) -> tuple[str, str]:
    """Return ``accept``, emptied if it cannot be understood, and the Content-Type of its answer."""
    try:
        return accept, prometheus.encode(Snapshot(), accept)[1]
    except (TypeError, ValueError):  # prometheus_client cannot compare a version such as `1.x`
        return "", prometheus.encode(Snapshot(), "")[1]


class PageTurns:
    """Gives each page that asks a later turn of its own.

    Up to eight pages ask every two seconds. More of them share the same turns: 64 ask every sixteen.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def seconds(self, now: float) -> int:
        """Return the whole seconds after which the page that asks should ask again; ``now``: of the monotonic clock."""
        self._last = max(self._last + _TURN_APART_SECONDS, now + _TURN_SOONEST_SECONDS)
        self._last = min(self._last, now + _TURN_LATEST_SECONDS)
        return round(self._last - now)


def takes_gzip(accept_encoding: str) -> bool:
    """Return True if a client with this Accept-Encoding header understands gzip."""
    return any(name == "gzip" and weight > 0 for name, weight in _entries(accept_encoding))


def preferred(asked: str | None, accept_language: str) -> str:
    """Return the code of the language that is ``asked`` for, or else of the best in an Accept-Language header.

    It is English where there is no such language.
    """
    if asked is not None:
        return code_of(asked) or CODES[0]
    known = [(weight, code_of(name)) for name, weight in _entries(accept_language) if weight > 0]
    return max((each for each in known if each[1]), key=lambda each: each[0], default=(0.0, CODES[0]))[1]


def _entries(header: str) -> list[tuple[str, float]]:
    """Return the names in a header of RFC 9110 such as `gzip, br;q=0.5`, each with its weight.

    A weight that cannot be understood is 0.
    """
    found = []
    for entry in header.lower().split(",")[:_MOST_HEADER_ENTRIES]:
        name, _, parameter = entry.replace(" ", "").partition(";")
        try:
            found.append((name, float(parameter.removeprefix("q=") or 1.0)))
        except ValueError:
            found.append((name, 0.0))
    return found
