"""The body of an answer that several clients share."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cached_property

from rlexporter.model.snapshot import Snapshot


@dataclass(frozen=True)
class Body:
    """The body of an answer, with the snapshot and the time (monotonic clock) that it was made of."""

    snapshot: Snapshot
    time: float
    body: bytes
    content_type: str

    @cached_property
    def zipped(self) -> bytes:
        """Return the body, compressed."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


def takes_gzip(accept_encoding: str) -> bool:
    """Tell whether a client with this Accept-Encoding header understands gzip."""
    wanted = [part.replace(" ", "").lower() for part in accept_encoding.split(",")]
    return any(part.split(";")[0] == "gzip" and not part.endswith((";q=0", ";q=0.0")) for part in wanted)
