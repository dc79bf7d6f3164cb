"""The judge of the catalogue's conditions."""

from __future__ import annotations

from rlexporter.catalog import CONDITIONS, MAY_BE_NONFINITE, NONFINITE, SIGNAL_SOURCES
from rlexporter.conditions import derived
from rlexporter.conditions.judge import Judge, Thresholds
from rlexporter.conditions.stall import STALLED
from rlexporter.conditions.watch import Watch


def watch(thresholds: Thresholds | None = None) -> Watch:
    """A watch on one run, by the catalogue. ``thresholds``: limits that differ from the declared ones."""
    stalled = (thresholds or {}).get(STALLED)
    functions = derived.table(NONFINITE, MAY_BE_NONFINITE)
    return Watch(
        Judge(CONDITIONS, SIGNAL_SOURCES, functions, thresholds), stalled if isinstance(stalled, float) else None
    )
