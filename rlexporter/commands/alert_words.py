"""Numbers of an alert in words: a value in its unit, a limit as it is set, and what it is relative to."""

from __future__ import annotations

from collections.abc import Mapping

from rlexporter.conditions import chance
from rlexporter.model.condition import Baseline, Condition

COUNTED = ("values", "reward functions", "keys")
"""The units of signals that count what should not be there: any is too many."""

_RELATIVE = {
    Baseline.START: "{} x its start",
    Baseline.FIRST: "{} x the 90th percentile of its first 30",
    Baseline.P90: "{} x the 90th percentile of its last 50",
    Baseline.RECENT: "{} x its recent median",
    Baseline.BEFORE: "{} x what it was 20 steps ago",
    Baseline.PREVIOUS: "{} x the value before",
    Baseline.LEVEL: "{} spreads below its own level",
}


def number(value: float, unit: str) -> str:
    """Return ``value`` with its unit: `0.83 nats per token`, `95 %`, `2 keys`."""
    if unit == chance.UNIT:
        return f"a chance of 1 in 10^{value:.3g}"
    if unit == "fraction":
        return f"{100 * value:.4g} %"
    if value == 1 and unit in COUNTED:
        unit = unit.removesuffix("s")
    unit = "" if unit == "reward" else unit
    return f"{value:.4g} {unit}".rstrip()


def limit_in_words(condition: Condition, factor: float | Mapping[str, float], threshold: float) -> str:
    """Return what a limit is relative to: `0.35 x its start`; empty for one that is a number of its own.

    ``factor``: the number that is set, or one for each variant of the signal; ``threshold``: what came of it.
    """
    baseline = condition.baseline
    if not baseline.relative:
        return ""
    floors = condition.floor.values() if isinstance(condition.floor, Mapping) else (condition.floor,)
    if not condition.below and threshold in floors:
        return "the least that it can be"
    factors = factor.values() if isinstance(factor, Mapping) else (factor,)
    written = " or ".join(f"{each:g}" for each in factors)
    return _RELATIVE.get(baseline, f"{{}} {baseline.value}").format(written)
