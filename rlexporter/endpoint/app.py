"""FastAPI application that serves a snapshot. The only file that imports fastapi.

Requests are answered on the event loop, without a thread pool: no thread can be started while the interpreter shuts
down, which is when the final state is fetched.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import fastapi
from fastapi import FastAPI, Request, Response

from rlexporter.catalog import runbooks
from rlexporter.catalog.languages import CODES, code_of, language
from rlexporter.catalog.metrics import NAMED
from rlexporter.endpoint.auth import METHODS
from rlexporter.endpoint.connections import ONCE_TAKEN
from rlexporter.endpoint.scrapers import Fetch, Fetches
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus
from rlexporter.status import document
from rlexporter.status.completions import Completions
from rlexporter.status.history import History
from rlexporter.status.page import page

VERSION = fastapi.__version__

_MOST_NAMES = 100
_MOST_CURVES = 50
"""The most metrics whose curves one answer has."""

_AGENT_LENGTH = 128
_COUNT = Series(NAMED["rlexporter_scrapes_total"])
_CLOCK = Series(NAMED["rlexporter_time_seconds"])

_KEPT_SECONDS = 1.0
_MOST_KEPT = 8
_FRESH_SECONDS = 1.0
"""The age up to which a document is shared although the snapshot has changed: polling pages cost the training time."""

_TURN_APART_SECONDS = 0.25
"""The time between two turns: an answer takes a few milliseconds of the process that trains."""
_TURN_SOONEST_SECONDS = 2
_TURN_LATEST_SECONDS = 30

_MOST_HEADER_ENTRIES = 20
"""The most entries of a header that are looked at."""


@dataclass(frozen=True)
class Body:
    """The body of an answer."""

    body: bytes
    content_type: str

    @cached_property
    def zipped(self) -> bytes:
        return gzip.compress(self.body, compresslevel=6, mtime=0)


class Bodies:
    """Cache of bodies by key. While the ``snapshot`` does not change, one a second is made for all clients.

    ``stale_seconds``: the age up to which a body is shared although the snapshot has changed.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], stale_seconds: float = 0.0) -> None:
        self._snapshot = snapshot
        self._stale_seconds = stale_seconds
        self._kept: dict[Hashable, tuple[Snapshot, float, Body]] = {}

    def get(self, key: Hashable, make: Callable[[Snapshot], Body]) -> Body:
        """Return the body that is kept for ``key``, or what ``make`` returns for the current snapshot."""
        now, moment = self._snapshot(), time.monotonic()
        if key in self._kept:
            snapshot, made, body = self._kept[key]
            if moment - made < (_KEPT_SECONDS if snapshot is now else self._stale_seconds):
                return body
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        body = make(now)
        self._kept[key] = (now, moment, body)
        return body


class Served:
    """What one application serves. Handlers find it by the request: FastAPI keeps every function that it was given."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], history: History, completions: Completions, fetches: Fetches
    ) -> None:
        self.snapshot = snapshot
        self.history = history
        self.completions = completions
        self.fetches = fetches
        self.page = Body(page().encode(), "text/html; charset=utf-8")
        self.scrapes = Bodies(snapshot)
        self.documents = Bodies(snapshot, _FRESH_SECONDS)
        self.turns = PageTurns()
        self.process = document.Process(socket.gethostname(), os.getpid())

    def scrape(self, accept: str, names: Sequence[str]) -> Body:
        """Return the series called ``names``, or all, in the format to ``accept``."""

        def encoded(now: Snapshot) -> Body:
            own = {_COUNT: float(self.fetches.total), _CLOCK: time.time()}
            return Body(*prometheus.encode(replace(now, samples={**now.samples, **own}), accept, names, process=True))

        return encoded(self.snapshot()) if names else self.scrapes.get(prometheus.content_type(accept), encoded)


def application(served: Served, failed: Callable[[Exception], None]) -> FastAPI:
    """Return the application. ``failed`` gets every error in an answer; the answer itself does not show it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.served = served

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        failed(error)
        return Response("This failed; the log of the training says why.\n", 500, media_type="text/plain")

    for path, answer in _ANSWERS.items():
        app.add_api_route(path, answer, methods=[*METHODS])
    return app


def _served(request: Request) -> Served:
    served = request.app.state.served
    assert isinstance(served, Served)
    return served


async def _health() -> Response:
    return Response("ok\n", media_type="text/plain")


async def _index(request: Request) -> Response:
    return _answer(request, _served(request).page, "Accept-Encoding")


async def _metrics(request: Request) -> Response:
    names = request.query_params.getlist("name[]")
    if len(names) > _MOST_NAMES:
        return Response(f"at most {_MOST_NAMES} times name[]\n", 400, media_type="text/plain")
    served, peer = _served(request), request.client
    agent = request.headers.get("user-agent", "")[:_AGENT_LENGTH]
    fetch = Fetch(time.monotonic(), peer.host if peer else "", peer.port if peer else 0, agent)
    served.fetches.add(fetch)
    request.scope[ONCE_TAKEN] = fetch.take
    return _answer(request, served.scrape(request.headers.get("accept", ""), names), "Accept, Accept-Encoding")


async def _status(request: Request) -> Response:
    served = _served(request)
    code = preferred(request.query_params.get("lang"), request.headers.get("accept-language", ""))

    def told(now: Snapshot) -> Body:
        return _json(document.status(now, served.history, time.time(), language(code), served.process))

    answer = _answer(request, served.documents.get(code, told), "Accept-Language, Accept-Encoding")
    answer.headers["Content-Language"] = code
    answer.headers["Retry-After"] = str(served.turns.seconds(time.monotonic()))
    return answer


async def _history(request: Request) -> Response:
    served = _served(request)
    names = tuple(request.query_params.getlist("series"))
    points = request.query_params.get("points", str(document.POINTS))
    if len(names) > _MOST_CURVES:
        return Response(f"at most {_MOST_CURVES} times series\n", 400, media_type="text/plain")
    known = points.isdecimal() and points.isascii() and len(points) < 5
    if not (known and 4 <= int(points) <= document.MOST_POINTS):
        return Response(f"points is a number from 4 to {document.MOST_POINTS}\n", 400, media_type="text/plain")
    heat_maps, earlier = (request.query_params.get(name) == "1" for name in ("heat_maps", "earlier"))
    asked = (names, int(points), heat_maps, earlier)
    body = served.documents.get(asked, lambda _: _json(document.curves(served.history, *asked)))
    return _answer(request, body, "Accept-Encoding")


async def _completions(request: Request) -> Response:
    served = _served(request)
    body = served.documents.get("completions", lambda _: _json(served.completions.as_json()))
    return _answer(request, body, "Accept-Encoding")


async def _runbook(name: str, request: Request) -> Response:
    text = runbooks.page(name.removesuffix(".md"))
    if text is None:
        return Response("there is no runbook of this name\n", 404, media_type="text/plain")
    return _answer(request, Body(text.encode(), "text/plain; charset=utf-8"), "Accept-Encoding")


_ANSWERS: dict[str, Callable[..., Awaitable[Response]]] = {
    "/livez": _health,
    "/readyz": _health,
    "/": _index,
    "/metrics": _metrics,
    "/api/status": _status,
    "/api/history": _history,
    "/api/completions": _completions,
    "/runbooks/{name}": _runbook,
}


def _json(content: dict[str, Any]) -> Body:
    return Body(json.dumps(content, allow_nan=False, separators=(",", ":")).encode(), "application/json")


def _answer(request: Request, body: Body, vary: str) -> Response:
    headers = {"Content-Type": body.content_type, "Vary": vary}
    if takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(body.zipped, headers={**headers, "Content-Encoding": "gzip"})
    return Response(body.body, headers=headers)


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

    Return that of English if there is no such language.
    """
    if asked is not None:
        return code_of(asked) or CODES[0]
    known = [(weight, code) for tag, weight in _entries(accept_language) if weight > 0 and (code := code_of(tag))]
    return max(known, key=lambda entry: entry[0], default=(0.0, CODES[0]))[1]


def _entries(header: str) -> list[tuple[str, float]]:
    """Return the names in a header of RFC 9110 such as `gzip, br;q=0.5`, each with its weight.

    A weight that cannot be understood is 0.
    """
    entries = []
    for entry in header.lower().split(",")[:_MOST_HEADER_ENTRIES]:
        name, _, parameter = entry.replace(" ", "").partition(";")
        try:
            entries.append((name, float(parameter.removeprefix("q=") or 1.0)))
        except ValueError:
            entries.append((name, 0.0))
    return entries
