"""Derived signals of the weights: whether they change, by how much, and what the optimizer does not have."""

from __future__ import annotations

from rlexporter.conditions.learning import untaught
from rlexporter.conditions.view import Declared, Memory, View

declared = Declared()

_CHANGED, _GRADIENTS = "rl_weight_changed_fraction", "rl_grad_norm_dist"
_UNTIL_MOVED = 20
"""The number of looks after which weights that have never changed are frozen; before it the rate may be tiny yet."""
_WARM_RATE = 0.1
"""The share of its highest value above which a learning rate must change weights in bf16 too."""
_LOOKS = 10
"""The number of looks before the usual share of weights that change is known."""


@declared.signal("weights_still", after=("learning_rate",), reads=(_CHANGED, _GRADIENTS))
def weights_still(view: View, memory: Memory) -> float | None:
    """Return 1 if no weight has changed since the last look although gradients were not zero, else 0.

    None where nothing is to be expected: without a gradient, at the low end of a schedule (in bf16 such updates are
    lost in rounding), and before weights have ever changed.
    """
    gradients, changed = view.counted.get(_GRADIENTS), view.counted.get(_CHANGED)
    here = gradients is not None and gradients.count > 0 and gradients.minimum > 0
    if changed is None or not changed.count:
        memory.pushed = memory.pushed and (here or gradients is None)
        return None
    pushed, memory.pushed = memory.pushed, here
    memory.where = _CHANGED
    memory.looks += 1
    if changed.maximum > 0:
        memory.moved = True
        return 0.0
    moved = memory.moved or memory.looks > _UNTIL_MOVED
    return 1.0 if pushed and here and moved and not _is_waning(memory) else None


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


def _is_waning(memory: Memory) -> bool:
    """Return True at the low end of a schedule of the learning rate, before it is 0."""
    rate = memory.past["learning_rate"]
    return bool(rate.count) and 0 < rate.newest < _WARM_RATE * rate.high
