"""Derived signals of the KL coefficient: never set, lost, or stuck."""

from __future__ import annotations

from itertools import islice, pairwise, takewhile
from statistics import median

from rlexporter.conditions.declare import Declared
from rlexporter.conditions.memory import Memory
from rlexporter.conditions.past import Past
from rlexporter.conditions.view import View

declared = Declared()

_MOVING = 10
"""The number of changes in a row that make a coefficient an adaptive one."""
_LITTLE_KL = {"k1": 0.05, "k3": 0.05, "sequence": 1.0}
"""The KL, by variant, below which its growth means nothing."""


@declared.signal("kl_coef_off", of="kl_coef")
def kl_coef_off(view: View, memory: Memory) -> float | None:
    """Return 1 if the coefficient is 0 and has never been anything else, else 0."""
    if memory.new("kl_coef") is None:
        return None
    coefficient = memory.past["kl_coef"]
    return float(coefficient.low == coefficient.high == 0.0)


@declared.signal("kl_coef_share", unit="fraction", of="kl_coef")
def kl_coef_share(view: View, memory: Memory) -> float | None:
    """Return the coefficient over its highest value so far; None while it was always 0."""
    found = memory.new("kl_coef")
    highest = memory.past["kl_coef"].high
    return found / highest if found is not None and highest > 0 else None


@declared.signal("kl_coef_stuck", unit="steps", of="kl_coef", after=("kl",))
def kl_coef_stuck(view: View, memory: Memory) -> float | None:
    """Return for how many steps a coefficient that used to adapt has not changed while KL asks for it, else 0.

    KL asks for it where the coefficient was rising, so that KL was above its target, and KL has not come down; and
    where KL has doubled.
    """
    if memory.new("kl_coef") is None:
        return None
    coefficient, kl = memory.past["kl_coef"], memory.past["kl"]
    still = _still_for(coefficient)
    before = coefficient.last(_MOVING + 1, still)
    if not still or len(before) <= _MOVING or any(a == b for a, b in pairwise(before)):
        return 0.0
    if "kl" not in memory.fresh or kl.count < coefficient.count:
        return 0.0
    then = max(median(kl.last(_MOVING, still)), _LITTLE_KL[memory.variant["kl"]])
    now = median(kl.last(min(still, 5)))
    return float(still) if now > (0.9 if before[-1] > before[0] else 2.0) * then else 0.0


def _still_for(past: Past) -> int:
    """Return for how many observations the newest value has been the same as the one before; 0 if it never changed."""
    if past.low == past.high or past.count < 2:
        return 0
    values = past.values
    return sum(1 for _ in takewhile(past.newest.__eq__, islice(reversed(values), 1, None)))
