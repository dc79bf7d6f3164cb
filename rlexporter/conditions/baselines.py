"""Measures a run's own past, with which relative limits are multiplied."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from rlexporter.conditions.past import FIRST, Past, p90, spread
from rlexporter.model.condition import Baseline

START = 5
"""Observations at the start of a run that it is compared with later."""
WARM = 10
"""Observations without which a run has no past to be measured with."""


Measure = float | tuple[float, float, float]
"""What the number of a limit is multiplied with; of `Baseline.LEVEL`: level, spread, and range so far."""


def measure(baseline: Baseline) -> Callable[[Past], Measure | None] | None:
    """Return what measures a run's own past, None of it while it is not long enough; None for a limit that is fixed."""
    return _MEASURES.get(baseline)


def _previous(past: Past) -> float | None:
    return past.values[-2] if past.count > 1 and past.values[-2] > 0 else None


def _start(past: Past) -> float | None:
    return median(past.first[:START]) if past.count > START else None


def _first(past: Past) -> float | None:
    return p90(past.first) if past.count > FIRST else None


def _p90(past: Past) -> float | None:
    own = past.last(50, 5)
    return p90(own) if len(own) >= WARM else None


def _recent(past: Past) -> float | None:
    own = past.last(30, 2)
    return median(own) if len(own) >= WARM else None


def _level(past: Past) -> tuple[float, float, float] | None:
    own = past.last(50, 10)
    return (*spread(own), past.high - past.low) if len(own) >= WARM else None


_MEASURES: dict[Baseline, Callable[[Past], Measure | None]] = {
    Baseline.PREVIOUS: _previous,
    Baseline.START: _start,
    Baseline.FIRST: _first,
    Baseline.P90: _p90,
    Baseline.RECENT: _recent,
    Baseline.LEVEL: _level,
}


def measured(factor: float, found: Measure) -> float:
    """Return the limit that is in force, in the unit of the signal."""
    if isinstance(found, tuple):
        level, deviation, extent = found
        # The whole range so far keeps a run that has hardly moved yet from being judged by its rounding.
        return level - max(factor * deviation, 0.15 * extent)
    return factor * found
