"""Bodies of answers that several clients share."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

from rlexporter.model.snapshot import Snapshot

_KEPT_SECONDS = 1.0
_MOST_KEPT = 8


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
