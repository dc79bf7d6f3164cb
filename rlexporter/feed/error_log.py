"""The boundary between the exporter's own errors and a training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from rlexporter.feed.builder import SnapshotBuilder

logger = logging.getLogger("rlexporter")


class ErrorLog:
    """Counts the exporter's own errors in ``rlexporter_errors_total{where}``, and logs the first of each kind.

    ``change``: makes a change of the snapshot, as `Feed.change` does. Any thread may use the log. It never raises.
    """

    def __init__(self, change: Callable[[Callable[[SnapshotBuilder], None]], None]) -> None:
        self._change = change
        self._logged: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def guard(self, where: str) -> Iterator[None]:
        """Keep errors inside the block from the training; count them under ``where``."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach a trainer
            self.add(where, error)

    def add(self, where: str, error: Exception) -> None:
        """Count an error that came from ``where``."""
        with contextlib.suppress(Exception):
            self._change(lambda builder: builder.add("rlexporter_errors_total", 1, where))
            kind = (where, type(error).__name__)
            if kind not in self._logged:
                self._logged.add(kind)
                text = "%s failed: %s. Training goes on; further errors of this kind are only counted."
                logger.warning(text, where, error or type(error).__name__, exc_info=error)
