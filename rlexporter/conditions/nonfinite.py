"""Signals that count NaN and infinities, and the order in which these arose within a step."""

from __future__ import annotations

from rlexporter.catalog.causes import Place, place
from rlexporter.catalog.conditions import NONFINITE
from rlexporter.catalog.metrics import MAY_BE_NONFINITE
from rlexporter.conditions.view import MAX_FUNCTIONS, Declared, Derive, Memory, View
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Transition

declared = Declared()

_DIST = "rl_reward_function_dist"
_OF_A_FUNCTION = ("rl_reward_function_mean", "rl_reward_function_std")

_ELSEWHERE = MAY_BE_NONFINITE.union(*(names for name, names in NONFINITE.items() if name != "nonfinite"))
_PLACES = {name: place for place, name in enumerate(NONFINITE["nonfinite"])}
_OTHER = len(_PLACES)
"""The place of a metric that no update is computed from."""


def _of(names: tuple[str, ...]) -> Derive:
    """Make a function that counts NaN and infinities in the metrics ``names``, and notes the one that had most.

    More data of a step that was judged can only add some: where it has none, there is nothing to observe.
    """

    def count(view: View, memory: Memory) -> float | None:
        bad = view.anomalies.nonfinite
        shown = [name for name in names if name in bad] if bad else ()
        if not shown:
            return 0.0 if view.advanced else None
        memory.where = max(shown, key=bad.__getitem__)
        return float(sum(bad[name] for name in shown))

    return count


def _of_rewards(names: tuple[str, ...]) -> Derive:
    """Count as `_of`, but leave out the NaN that older TRL logs for None once tensors tell the two apart."""
    of_all, of_plain = _of(names), _of(tuple(name for name in names if name not in _OF_A_FUNCTION))

    def count(view: View, memory: Memory) -> float | None:
        if not memory.tapped:
            memory.tapped = _DIST in view.anomalies.undefined or any(s.metric.series == _DIST for s in view.seen)
        count = (of_plain if memory.tapped else of_all)(view, memory)
        if count:
            seen = [s.labels[0] for s, counted in view.seen.items() if s.metric.series == _DIST and counted.nonfinite]
            logged = view.functions.get("rl_reward_function_mean", {})
            returned = seen or [name for name, value in logged.items() if value is not None and value - value != 0.0]
            memory.about(dict.fromkeys(returned, view.step))
        return count

    return count


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


declared.signal("nonfinite_reward", unit="values", rests=True)(_of_rewards(NONFINITE["nonfinite_reward"]))
declared.signal("nonfinite_value_loss", unit="values", rests=True)(_of(NONFINITE["nonfinite_value_loss"]))
declared.signal("nonfinite_eval_reward", unit="values")(_of_evaluations(NONFINITE["nonfinite_eval_reward"]))


@declared.signal("nonfinite", unit="values", rests=True)
def _nonfinite(view: View, memory: Memory) -> float | None:
    """Count those of the metric that is the first in its step to have any; it is what the condition is about.

    A metric that no update is computed from comes last. More data of a step can only add some, as in `_of`.
    """
    order = {name: _place(name, view) for name in view.anomalies.nonfinite if name not in _ELSEWHERE}
    if not order:
        if not view.advanced:
            return None
        memory.nonfinite_place = None
        return 0.0
    first = min(order, key=order.__getitem__)
    now, told = order[first], memory.nonfinite_place
    # What an update is computed from is worse than any other metric, and later data may show an earlier cause.
    memory.again = told is not None and now < told and (told == _OTHER or not view.advanced)
    memory.nonfinite_place = now if told is None else min(now, told)
    memory.where = first
    memory.about({first: view.step})
    return float(view.anomalies.nonfinite[first])


def _place(name: str, view: View) -> float:
    """Return the place of the metric ``name`` among those that a step computes."""
    if name == "rl_weight_norm":
        # Nothing is compared with NaN: weights that were compared were numbers before. So were those that come late.
        were_numbers = not view.advanced or view.counted.get("rl_weight_changed_fraction", _NOTHING).count
        return _OTHER - 0.5 if were_numbers else _PLACES[name]
    if name == "rl_grad_norm" and _outlived(view, "rl_grad_norm_dist", "rl_loss_dist"):
        # What one of several updates makes NaN comes before all that the next ones compute.
        return _PLACES["rl_policy_ratio_mean"] - 0.5
    return _PLACES.get(name, _OTHER)


def place_of(transition: Transition, view: View) -> Place:
    """Return the place of a limit that begins now among the causes of its step.

    The table of conditions has the order in which a step computes, but for `nonfinite`, which is of several numbers.
    """
    condition, limit = transition.condition, transition.limit
    if condition.name != "nonfinite":
        return place(condition, limit)
    at = _place(transition.series, view)
    if at < _PLACES["rl_kl_per_token"]:
        return place(condition, limit, before="nonfinite_reward")
    return place(condition, limit, before="nonfinite_value_loss" if at < _PLACES["rl_loss"] else "")


def spreads(transition: Transition) -> bool:
    """Return True for what ends the weights by the next step, as long as it holds."""
    return transition.series in _PLACES or transition.condition.name == "nonfinite_value_loss"


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
