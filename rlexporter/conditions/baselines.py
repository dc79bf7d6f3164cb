"""Measures a run's own past, which relative limits are multiples of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rlexporter.conditions.past import FIRST, Past, p90, spread
from rlexporter.model.condition import Baseline

START = 5
"""The number of first observations that `Baseline.START` uses."""
WARM = 10
"""The number of observations from which a run has a past that can be measured."""


Measure = float | tuple[float, float, float]
"""The factor of a relative limit; for `Baseline.LEVEL`: level, spread, and range so far."""


def measure(baseline: Baseline) -> Callable[[Past], Measure | None] | None:
    """Return the function that measures a past, and gives None while it is too short; None for `Baseline.FIXED`."""
    return _MEASURES.get(baseline)


def refresh(baseline: Baseline) -> int:
    """Return the number of observations for which a measure stays good: what is new is left out of most anyway."""
    return 1 if baseline is Baseline.PREVIOUS else 5


def _previous(past: Past) -> float | None:
    return past.values[-2] if past.count > 1 and past.values[-2] > 0 else None


def _start(past: Past) -> float | None:
    return past.start(START) if past.count > START else None


def _first(past: Past) -> float | None:
    return _p90_of(past.first) if past.count > FIRST else None


def _p90(past: Past) -> float | None:
    return _p90_of(past.last(50, 5))


def _p90_of(values: Sequence[float]) -> float | None:
    # Half of the gradients of a healthy run can be 0, where groups have no spread of reward: they say nothing of scale.
    own = [value for value in values if value]
    return p90(own) if len(own) >= WARM else None


def _before(past: Past) -> float | None:
    own = past.last(30, 20)
    return median(own) if len(own) >= WARM else None


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
    Baseline.BEFORE: _before,
    Baseline.LEVEL: _level,
}


def measured(factor: float, found: Measure) -> float:
    """Return the limit in force, in the unit of the signal: ``factor`` times the measure ``found``."""
    if isinstance(found, tuple):
        level, deviation, extent = found
        # A share of the range so far keeps a run that has hardly moved from being judged by rounding errors.
        return level - max(factor * deviation, 0.15 * extent)
    return factor * found
