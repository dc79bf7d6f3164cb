"""Bodies of answers that several clients share, and those of `/api/status` and `/api/history`."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlexporter.catalog.languages import language
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import document
from rlexporter.status.history import History

_KEPT_SECONDS = 1.0
_MOST_KEPT = 8

MOST_NAMES = 50
"""The most metrics whose curves one answer has."""

_FRESH_SECONDS = 1.0
"""The age up to which an answer is shared although the snapshot has changed: pages that poll cost the training this."""
_TYPE = "application/json"


@dataclass(frozen=True)
class Body:
    """The body of an answer."""

    body: bytes
    content_type: str

    @cached_property
    def zipped(self) -> bytes:
        """Return the body, compressed."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


class Bodies:
    """Cache of bodies by key. While the snapshot does not change, one a second is made for all clients.

    ``stale_seconds``: the age up to which a body is shared although the snapshot has changed.
    """

    def __init__(self, stale_seconds: float = 0.0) -> None:
        self._stale_seconds = stale_seconds
        self._kept: dict[Hashable, tuple[Snapshot, float, Body]] = {}

    def get(self, key: Hashable, snapshot: Snapshot, make: Callable[[], Body]) -> Body:
        """Return the body that is kept for ``key``, or what ``make`` returns for ``snapshot``."""
        moment = time.monotonic()
        if key in self._kept:
            of, made, body = self._kept[key]
            if moment - made < (_KEPT_SECONDS if of is snapshot else self._stale_seconds):
                return body
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        body = make()
        self._kept[key] = (snapshot, moment, body)
        return body


class Statuses:
    """Cache of both documents for all who ask.

    Each is made at most once a second; the status is one document in each language.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], history: History) -> None:
        self._snapshot = snapshot
        self._history = history
        self._shared = Bodies(_FRESH_SECONDS)

    def status(self, code: str) -> Body:
        """Return the document of the run in the language ``code``, one of `languages.CODES`.

        It is a second old at most.
        """
        return self._get(code, lambda now: document.status(now, self._history, time.time(), language(code)))

    def history(self, names: tuple[str, ...], points: int) -> Body:
        """Return the curves of the metrics ``names``, with at most ``points`` each."""
        return self._get((names, points), lambda _: document.curves(self._history, names, points))

    def _get(self, key: Hashable, make: Callable[[Snapshot], dict[str, Any]]) -> Body:
        now = self._snapshot()

        def made() -> Body:
            return Body(json.dumps(make(now), allow_nan=False, separators=(",", ":")).encode(), _TYPE)

        return self._shared.get(key, now, made)
