"""NaN and infinities, the order in which they arose within a step, and rewards that are missing."""

from __future__ import annotations

from rlexporter.catalog.metrics import MAY_BE_NONFINITE
from rlexporter.conditions.declare import GROUP, PPO, condition, signal
from rlexporter.conditions.detectors import Each, Gone, critical, found, level, warning
from rlexporter.conditions.view import Context, Found, Reading, View
from rlexporter.model.condition import Family
from rlexporter.model.histogram import Histogram

NONFINITE: dict[str, tuple[str, ...]] = {
    "nonfinite_reward": (
        "rl_reward_mean",
        "rl_reward_std",
        "rl_reward_dist",
        "rl_scores_mean",
        "rl_scores_std",
        "rl_reward_function_mean",
        "rl_reward_function_std",
        "rl_reward_function_dist",
    ),
    "nonfinite_value_loss": ("rl_value_loss",),
    "nonfinite": (
        "rl_weight_norm",
        "rl_kl_per_token",
        "rl_kl_per_token_dist",
        "rl_kl_per_sequence",
        "rl_kl_per_sequence_dist",
        "rl_kl_loss_per_token",
        "rl_kl_penalty_per_token",
        "rl_kl_k1_per_token",
        "rl_kl_estimate_per_token",
        "rl_advantage_mean",
        "rl_token_advantage_mean",
        "rl_advantage_dist",
        "rl_policy_ratio_mean",
        "rl_policy_ratio_dist",
        "rl_sequence_ratio_dist",
        "rl_policy_approxkl",
        "rl_policy_policykl",
        "rl_policy_loss",
        "rl_loss",
        "rl_total_loss",
        "rl_micro_batch_loss_mean",
        "rl_grad_norm",
        "rl_value_grad_norm",
    ),
    "nonfinite_eval_reward": ("rl_eval_reward_function_unfiltered_mean",),
}
"""The metrics whose NaN and infinities each of these signals counts, in the order in which a step computes them.

`nonfinite` counts those of all other metrics too, behind these.
"""
_DIST = "rl_reward_function_dist"
_OF_A_FUNCTION = ("rl_reward_function_mean", "rl_reward_function_std")
_ELSEWHERE = MAY_BE_NONFINITE.union(*(names for name, names in NONFINITE.items() if name != "nonfinite"))
PLACES = {name: place for place, name in enumerate(NONFINITE["nonfinite"])}
_OTHER = len(PLACES)
"""The place of a metric that no update is computed from."""
_NOTHING = Histogram.empty(())


def _counted(names: tuple[str, ...], view: View) -> Reading | None:
    """Count NaN and infinities in the metrics ``names``, and note the one that had most.

    More data of a step that was judged can only add some: where it has none, there is nothing to observe.
    """
    bad = view.anomalies.nonfinite
    shown = [name for name in names if name in bad] if bad else []
    if shown:
        return Reading(float(sum(bad[name] for name in shown)), max(shown, key=bad.__getitem__))
    return Reading(0.0) if view.advanced else None


@signal("nonfinite_reward", "values")
class Rewards:
    """Counts them in rewards, but for the NaN that older TRL logs for None once tensors tell the two apart."""

    def __init__(self) -> None:
        self._tapped = False

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the count."""
        if not self._tapped:
            self._tapped = _DIST in view.anomalies.undefined or any(s.metric.series == _DIST for s in view.seen)
        names = NONFINITE["nonfinite_reward"]
        if self._tapped:
            names = tuple(name for name in names if name not in _OF_A_FUNCTION)
        count = _counted(names, view)
        if not count or not count.value:
            return count
        seen = [s.labels[0] for s, counted in view.seen.items() if s.metric.series == _DIST and counted.nonfinite]
        logged = view.functions.get("rl_reward_function_mean", {})
        returned = seen or [name for name, value in logged.items() if value is not None and value - value != 0.0]
        return count._replace(subject=dict.fromkeys(returned, view.step))


@signal("nonfinite_value_loss", "values")
def value_loss(view: View, run: Context) -> Reading | None:
    """Count them in the value loss."""
    return _counted(NONFINITE["nonfinite_value_loss"], view)


@signal("nonfinite_eval_reward", "values", reads=NONFINITE["nonfinite_eval_reward"])
class Evaluations:
    """Counts those of the last evaluation of each data set. A step without an evaluation shows nothing."""

    def __init__(self) -> None:
        self._counts: Each[list[int]] = Each(list)

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the count."""
        (name,) = NONFINITE["nonfinite_eval_reward"]
        shown = {series.labels: seen.nonfinite for series, seen in view.seen.items() if series.metric.series == name}
        for labels, bad in shown.items():  # a data set that is evaluated says nothing of another one
            for _, counts in self._counts.of(["/".join(labels)]):
                counts[:] = [sum(number for _, number in bad.by_kind())]
        total = sum(sum(counts) for _, counts in self._counts.items())
        subject = {labels[-1]: view.step for labels, bad in shown.items() if bad}
        return Reading(float(total), name, subject) if shown else None


@signal("nonfinite", "values")
class First:
    """Counts those of the metric that is the first in its step to have any; it is what the condition is about.

    A metric that no update is computed from comes last. More data of a step can only add some, as in `_counted`.
    """

    def __init__(self) -> None:
        self._worst: float | None = None
        """The place of what was first NaN in the steps in a row that have any; None if the last had none."""

    def __call__(self, view: View, run: Context) -> float | Reading | None:
        """Return the count."""
        order = {name: place(name, view) for name in view.anomalies.nonfinite if name not in _ELSEWHERE}
        if not order:
            if not view.advanced:
                return None
            self._worst = None
            return 0.0
        first = min(order, key=order.__getitem__)
        now, before = order[first], self._worst
        # What an update is computed from is worse than any other metric, and later data may show an earlier cause.
        worse = before is not None and now < before and (before == _OTHER or not view.advanced)
        self._worst = now if before is None else min(now, before)
        return Reading(float(view.anomalies.nonfinite[first]), first, {first: view.step}, worse=worse)


def place(name: str, view: View) -> float:
    """Return the place of the metric ``name`` among those that a step computes."""
    if name == "rl_weight_norm":
        # Nothing is compared with NaN: weights that were compared were numbers before. So were those that come late.
        were_numbers = not view.advanced or view.counted.get("rl_weight_changed_fraction", _NOTHING).count
        return _OTHER - 0.5 if were_numbers else PLACES[name]
    if name == "rl_grad_norm" and _outlived(view, "rl_grad_norm_dist", "rl_loss_dist"):
        # What one of several updates makes NaN comes before all that the next ones compute.
        return PLACES["rl_policy_ratio_mean"] - 0.5
    return PLACES.get(name, _OTHER)


def _outlived(view: View, name: str, other: str) -> bool:
    """Return True if the ``other`` metric was still a number in the update in which ``name`` was not.

    All of both that comes after such an update is NaN. An update has one of ``name``, and perhaps several of ``other``.
    """
    first, then = view.counted.get(name, _NOTHING), view.counted.get(other, _NOTHING)
    updates, parts = _total(first), _total(then)
    return bool(first.nonfinite and then.count * updates >= (first.count + 1) * parts > 0)


def _total(counted: Histogram) -> int:
    return counted.count + sum(count for _, count in counted.nonfinite.by_kind())


@signal("reward_lost", of="reward", reads=())
def reward_lost(view: View, run: Context) -> Found | None:
    """Find out that every reward of the step was None."""
    none, seen = view.anomalies.undefined.get("rl_reward_dist", 0), view.counted.get("rl_reward_dist")
    if seen is not None or none:
        return {"": 0} if none and (seen is None or not (seen.count or seen.nonfinite)) else {}
    if view.anomalies.undefined.get("rl_reward_mean"):
        return {"": 0}
    return {} if "reward" in run.fresh else None


@signal("reward_function_lost", reads=("rl_reward_function_mean",))
class FunctionLost:
    """Finds reward functions that gave no number after they had always given some. Uses log lines only."""

    def __init__(self) -> None:
        self._given = Each(Gone)

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return the functions; None where a tensor tells None and NaN apart."""
        functions = view.functions.get("rl_reward_function_mean", {})
        if "rl_reward_dist" in view.counted or not functions:
            return None
        followed = self._given.of(functions)
        return {name: gone.since or 0 for name, gone in followed if gone.add(functions[name] is not None, view.step)}


CONDITIONS = (
    condition("nonfinite_reward", "RLRewardLost", Family.NONFINITE, "nonfinite_reward").when(
        level(critical(0.0)),
        "A reward is NaN or infinite.",
        about="{subject} returned NaN or infinity.",
        related=("rl_nonfinite_values_total", "rl_reward_mean", "rl_reward_function_mean"),
    ),
    condition("nonfinite_value_loss", "RLValueLossNonFinite", Family.NONFINITE, "nonfinite_value_loss", PPO).when(
        level(critical(0.0)),
        "The value loss is NaN or infinite.",
        related=("rl_nonfinite_values_total", "rl_value_loss", "rl_value_mean", "rl_return_mean"),
    ),
    condition("nonfinite", "RLNotANumber", Family.NONFINITE, "nonfinite").when(
        level(critical(0.0)),
        "A number that training computes is NaN or infinite.",
        about="{subject} is NaN or infinite.",
        related=(
            "rl_nonfinite_values_total",
            "rl_weight_norm",
            "rl_loss",
            "rl_grad_norm",
            "rl_last_good_checkpoint_step",
        ),
    ),
    condition("reward_lost", "RLRewardLost", Family.NONFINITE, "reward_lost").when(
        found(critical()),
        "No completion of a step got a reward.",
        related=("rl_undefined_values_total", "rl_reward_mean"),
    ),
    condition("reward_function_lost", "RLRewardLost", Family.NONFINITE, "reward_function_lost", GROUP).when(
        found(critical()),
        "A reward function no longer returns numbers.",
        about="{subject} no longer returns numbers.",
        related=("rl_reward_function_mean", "rl_undefined_values_total"),
    ),
)
EVALUATION = (
    condition("nonfinite_eval_reward", "RLRewardLost", Family.EVALUATION, "nonfinite_eval_reward", GROUP).when(
        level(warning(0.0)),
        "A reward function returned NaN or infinity in an evaluation.",
        about="{subject} returned NaN or infinity in an evaluation.",
        related=("rl_eval_reward_function_unfiltered_mean", "rl_nonfinite_values_total"),
    ),
)
