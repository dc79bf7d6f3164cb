"""A limit as it is in force now: its number, measured with the run's own past where it is relative."""

from __future__ import annotations

from statistics import median

from rlexporter.condition import Baseline
from rlexporter.conditions.past import FIRST, Past, p90, spread

START = 5
"""Observations at the start of a run that it is compared with later."""
WARM = 10
"""Observations without which a run has no past to be measured with."""


def measured(baseline: Baseline, factor: float, past: Past) -> float | None:
    """The limit in the unit of the signal; None while the run has no past that is long enough."""
    if baseline is Baseline.FIXED:
        return factor
    if baseline is Baseline.PREVIOUS:
        return factor * past.values[-2] if past.count > 1 and past.values[-2] > 0 else None
    if baseline is Baseline.START:
        return factor * median(past.first[:START]) if past.count > START else None
    if baseline is Baseline.FIRST:
        return factor * p90(past.first) if past.count > FIRST else None
    length, lag = {Baseline.P90: (50, 5), Baseline.RECENT: (30, 2), Baseline.LEVEL: (50, 10)}[baseline]
    own = past.last(length, lag)
    if len(own) < WARM:
        return None
    if baseline is Baseline.P90:
        return factor * p90(own)
    if baseline is Baseline.RECENT:
        return factor * median(own)
    middle, deviation = spread(own)
    # The whole range so far keeps a run that has hardly moved yet from being judged by its rounding.
    return middle - max(factor * deviation, 0.15 * (past.high - past.low))
