"""Places what is not finite in the order in which its step made it so.

The table of conditions has the order in which a step computes. A step of PPO has several updates, though: what the
first of them makes NaN comes before all that the others compute, although an update computes it last.
"""

from __future__ import annotations

from rlexporter.catalog.causes import Place, place
from rlexporter.conditions.view import View
from rlexporter.model.condition import Condition, Limit
from rlexporter.model.histogram import Histogram

_FIRST_OF_UPDATE = "nonfinite_ratio"
"""What an update computes first."""


class StepOrder:
    """Follows one run, look by look."""

    def __init__(self) -> None:
        self._weights_were_numbers = False

    def see(self, view: View) -> None:
        """Take the data of a step, or more of it."""
        if view.advanced:
            self._weights_were_numbers = False
        if view.counted.get("rl_weight_changed_fraction", _NOTHING).count:  # nothing is compared with NaN
            self._weights_were_numbers = True

    def place(self, condition: Condition, limit: Limit, view: View) -> Place:
        """Return the place of a limit that begins now among the causes of its step."""
        if condition.name == "nonfinite_weights" and self._weights_were_numbers:
            return place(condition, limit, last=True)
        if condition.name == "nonfinite_grad" and _outlived(view, "rl_grad_norm_dist", "rl_loss_dist"):
            return place(condition, limit, before=_FIRST_OF_UPDATE)
        return place(condition, limit)


_NOTHING = Histogram.empty(())


def _outlived(view: View, name: str, other: str) -> bool:
    """Return True if the ``other`` metric was still a number in the update in which ``name`` became none.

    All of both that comes after such an update is NaN. An update has one of ``name``, and perhaps several of ``other``.
    """
    first, then = view.counted.get(name, _NOTHING), view.counted.get(other, _NOTHING)
    updates, parts = _total(first), _total(then)
    return bool(first.nonfinite and then.count * updates >= (first.count + 1) * parts > 0)


def _total(counted: Histogram) -> int:
    return counted.count + sum(count for _, count in counted.nonfinite.by_kind())
