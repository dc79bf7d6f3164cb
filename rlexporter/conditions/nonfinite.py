"""Signals that count NaN and infinities, and the order in which these arose within a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlexporter.catalog.causes import Place, place
from rlexporter.catalog.conditions import NONFINITE
from rlexporter.catalog.metrics import MAY_BE_NONFINITE
from rlexporter.conditions.view import MAX_FUNCTIONS, Declared, Derive, Memory, View
from rlexporter.model.condition import Condition, Limit
from rlexporter.model.histogram import Histogram

declared = Declared()

_NOT_OTHER = MAY_BE_NONFINITE.union(*NONFINITE.values())
_DIST = "rl_reward_function_dist"
_OF_A_FUNCTION = ("rl_reward_function_mean", "rl_reward_function_std")

_FIRST_OF_UPDATE = "nonfinite_ratio"
"""What an update computes first."""


def _counting(wanted: Callable[[Mapping[str, int]], list[str]]) -> Derive:
    """Make a function that counts NaN and infinities in ``wanted`` metrics, and notes the one that had most.

    More data of a step that was judged can only add some: where it has none, there is nothing to observe.
    """

    def count(view: View, memory: Memory) -> float | None:
        bad = view.anomalies.nonfinite
        names = wanted(bad) if bad else ()
        if not names:
            return 0.0 if view.advanced else None
        memory.where = max(names, key=bad.__getitem__)
        return float(sum(bad[name] for name in names))

    return count


def _of(names: tuple[str, ...]) -> Derive:
    return _counting(lambda bad: [name for name in names if name in bad])


def _of_rewards(names: tuple[str, ...]) -> Derive:
    """Count as `_of`, but leave out the NaN that older TRL logs for None once tensors tell the two apart."""
    of_all, of_plain = _of(names), _of(tuple(name for name in names if name not in _OF_A_FUNCTION))

    def count(view: View, memory: Memory) -> float | None:
        if not memory.tapped:
            memory.tapped = _DIST in view.anomalies.undefined or any(s.metric.series == _DIST for s in view.seen)
        count = (of_plain if memory.tapped else of_all)(view, memory)
        if count:
            memory.about(dict.fromkeys(_functions(view), view.step))
        return count

    return count


def _functions(view: View) -> list[str]:
    """Return the reward functions that returned NaN or infinity."""
    seen = [s.labels[0] for s, counted in view.seen.items() if s.metric.series == _DIST and counted.nonfinite]
    logged = view.functions.get("rl_reward_function_mean", {})
    return seen or [name for name, value in logged.items() if value is not None and value - value != 0.0]


def _of_evaluations(names: tuple[str, ...]) -> Derive:
    """Count those of the last evaluation of each data set. A step without an evaluation shows nothing."""

    def count(view: View, memory: Memory) -> float | None:
        if not view.seen:
            return None
        shown = [(series, counted.nonfinite) for series, counted in view.seen.items() if series.metric.series in names]
        for series, bad in shown:  # a data set that is evaluated says nothing of another one
            if series.labels in memory.evaluated or len(memory.evaluated) < MAX_FUNCTIONS:
                memory.evaluated[series.labels] = sum(number for _, number in bad.by_kind())
        (memory.where,) = names
        memory.about({series.labels[-1]: view.step for series, bad in shown if bad})
        return float(sum(memory.evaluated.values())) if shown else None

    return count


_SPECIAL = {"nonfinite_reward": _of_rewards, "nonfinite_eval_reward": _of_evaluations}
for _name, _metrics in NONFINITE.items():
    declared.signal(_name, unit="values", rests=_name != "nonfinite_eval_reward")(_SPECIAL.get(_name, _of)(_metrics))
declared.signal("nonfinite_other", unit="values", rests=True)(
    _counting(lambda bad: [name for name in bad if name not in _NOT_OTHER])
)


class StepOrder:
    """Orders the non-finite values of a step by when they arose. One for each run, called at each look.

    The table of conditions has the order in which a step computes. A step of PPO has several updates, though: what the
    first of them makes NaN comes before all that the others compute, although an update computes it last.
    """

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
