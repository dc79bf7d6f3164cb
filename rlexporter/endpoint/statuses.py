"""Answers of `/api/status` and `/api/history`, made once for all pages that are open."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from typing import Any

from rlexporter.catalog.languages import language
from rlexporter.endpoint.bodies import Bodies, Body
from rlexporter.model.snapshot import Snapshot
from rlexporter.status import document
from rlexporter.status.history import History

MOST_NAMES = 50
"""The most metrics whose curves one answer has."""

_FRESH_SECONDS = 1.0
"""The age up to which an answer is shared although the snapshot has changed: pages that poll cost the training this."""
_TYPE = "application/json"


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
