"""Snapshot -> OTLP, pushed to a collector. The only file that imports opentelemetry."""

from __future__ import annotations

from collections.abc import Callable

from rlexporter.model import Snapshot
from rlexporter.ticker import Ticker


def pusher(setting: str, snapshot: Callable[[], Snapshot], failed: Callable[[Exception], None]) -> Ticker:
    """Pushes snapshots. ``setting``: `on`, or the address of a collector. Raises SetupError."""
    raise NotImplementedError
