"""Derived signals of the weights: whether they change, by how much, and what the optimizer does not have."""

from __future__ import annotations

from rlexporter.conditions.learning import untaught
from rlexporter.conditions.view import Declared, Memory, View

declared = Declared()

_LOOKS = 10
"""The number of looks before the usual share of weights that change is known."""


@declared.signal("weights_rounded", unit="fraction", of="weights_changed")
def weights_rounded(view: View, memory: Memory) -> float | None:
    """Return the share of the weights that change; None where none does, as then they are frozen."""
    return memory.new("weights_changed") or None


@declared.signal(
    "optimizer_missing", unit="fraction", of="not_in_optimizer", after=("weights_changed", "learning_rate")
)
def optimizer_missing(view: View, memory: Memory) -> float | None:
    """Return the share of the trained tensors that the optimizer has lost since the start, or 1 if it never had any.

    An optimizer that works on copies has none of them either: then weights that do not change must prove it.
    """
    share, changed = memory.new("not_in_optimizer"), memory.new("weights_changed")
    if share is None:
        return None
    first = memory.past["not_in_optimizer"].first[0]
    if share < 1.0 or first < 1.0:
        return max(0.0, share - first)
    rate = max(memory.past["learning_rate"].last(2), default=0.0)
    return None if changed is None else float(changed == 0.0 and rate > 0.0)


@declared.signal("gradients_lost", unit="fraction", of="gradient_zero")
def gradients_lost(view: View, memory: Memory) -> float | None:
    """Return by how much more of the tensors have no gradient than in any of the first steps; None in those."""
    share, past = memory.new("gradient_zero"), memory.past["gradient_zero"]
    return None if share is None or past.count <= _LOOKS else max(0.0, share - max(past.first[:_LOOKS]))


@declared.signal("weight_norm_step", of="weight_norm")
def weight_norm_step(view: View, memory: Memory) -> float | None:
    """Return by which part of itself the norm of the weights has changed since the last look."""
    norm, before = memory.new("weight_norm"), memory.past["weight_norm"].last(1, 1)
    return abs(norm / before[0] - 1.0) if norm is not None and before and before[0] > 0.0 else None


@declared.signal("update_per_rate", of="update_size", after=("learning_rate", "weights_changed", "flat_share"))
def update_per_rate(view: View, memory: Memory) -> float | None:
    """Return the size of the last update over its learning rate; None where most of it is lost in rounding."""
    if untaught(memory):
        return None
    size, share = memory.new("update_size"), memory.new("weights_changed")
    rate = max(memory.past["learning_rate"].last(2), default=0.0)  # the update was made in the step before
    return size / rate if size is not None and share is not None and share > 0.5 and rate > 0.0 else None


@declared.signal("optimizer_restart", of="optimizer_updates")
def optimizer_restart(view: View, memory: Memory) -> float | None:
    """Return 1 if the optimizer counts fewer updates than before, or half as many as a run that resumes has steps.

    Else 0. A trainer may take several updates a step; a scaler of fp16 skips a few.
    """
    count, past = memory.new("optimizer_updates"), memory.past["optimizer_updates"]
    if count is None:
        return None
    if past.count > 1:
        return float(count < past.values[-2])
    return float(memory.resumed and count < view.step / 2)
