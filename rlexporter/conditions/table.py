"""The table of signals and conditions: each condition beside the signal that it judges, by what it is about.

At the end they stand in the order from cause to symptom, which rules and docs keep. docs/evidence.md shows what each is
needed for, and docs/alerts.md which runs the limits were set on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache, partial
from itertools import islice, pairwise, takewhile
from math import ceil, log, sqrt
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from rlexporter.catalog.metrics import MAY_BE_NONFINITE, NAMED
from rlexporter.conditions import declare
from rlexporter.conditions.declare import GROUP, GROUPS, PPO, TRAINERS, condition, derived, mean, read, signal, source
from rlexporter.conditions.detectors import (
    LASTING,
    MOSTLY,
    NOISE,
    SOME,
    START,
    Apart,
    Each,
    Gone,
    Own,
    Past,
    Shift,
    Still,
    critical,
    deviation,
    found,
    info,
    level,
    ratio,
    spread,
    warning,
)
from rlexporter.conditions.learning import found_late, untaught
from rlexporter.conditions.view import ASIDE, ROUNDING, Context, Found, Reading, View, value_range
from rlexporter.model.condition import Condition, Family, Read, Signal, Source
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Metric

if TYPE_CHECKING:
    from rlexporter.catalog.questions import Shown

# NaN and infinities, the order in which they arose within a step, and rewards that are missing.

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
_EACH = "rl_reward_function_dist"
_OF_A_FUNCTION = ("rl_reward_function_mean", "rl_reward_function_std")
_ELSEWHERE = MAY_BE_NONFINITE.union(*(names for name, names in NONFINITE.items() if name != "nonfinite"))
PLACES = {name: place for place, name in enumerate(NONFINITE["nonfinite"])}
_OTHER = len(PLACES)
"""The place of a metric that no update is computed from."""
_NOTHING = Histogram.empty(())


def _count_nonfinite(names: tuple[str, ...], view: View) -> float | Reading | None:
    """Count NaN and infinities in the metrics ``names``, and note the one that had most.

    More data of a step that was judged can only add some: where it has none, there is nothing to observe.
    """
    bad = view.anomalies.nonfinite
    shown = [name for name in names if name in bad] if bad else []
    if shown:
        return Reading(float(sum(bad[name] for name in shown)), max(shown, key=bad.__getitem__))
    return 0.0 if view.advanced else None


@signal("nonfinite_reward", "values")
class NonfiniteRewards:
    """Counts them in rewards, but for the NaN that older TRL logs for None once tensors tell the two apart."""

    def __init__(self) -> None:
        self._tapped = False

    def __call__(self, view: View, run: Context) -> float | Reading | None:
        """Return the count."""
        if not self._tapped and (view.seen or view.anomalies.undefined):
            self._tapped = _EACH in view.anomalies.undefined or any(s.metric.series == _EACH for s in view.seen)
        names = NONFINITE["nonfinite_reward"]
        if self._tapped:
            names = tuple(name for name in names if name not in _OF_A_FUNCTION)
        count = _count_nonfinite(names, view)
        if not isinstance(count, Reading):
            return count
        seen = [s.labels[0] for s, counted in view.seen.items() if s.metric.series == _EACH and counted.nonfinite]
        logged = view.functions.get("rl_reward_function_mean", {})
        returned = seen or [name for name, value in logged.items() if value is not None and value - value != 0.0]
        return count._replace(subject=dict.fromkeys(returned, view.step))


@signal("nonfinite_value_loss", "values")
def nonfinite_value_loss(view: View, run: Context) -> float | Reading | None:
    """Count them in the value loss."""
    return _count_nonfinite(NONFINITE["nonfinite_value_loss"], view)


@signal("nonfinite_eval_reward", "values", reads=NONFINITE["nonfinite_eval_reward"])
class NonfiniteEvaluations:
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
class NonfiniteFirst:
    """Counts those of the metric that is the first in its step to have any; it is what the condition is about.

    A metric that no update is computed from comes last. More data of a step can only add some, as there.
    """

    def __init__(self) -> None:
        self._worst: float | None = None
        """The place of what was first NaN in the steps in a row that have any; None if the last had none."""

    def __call__(self, view: View, run: Context) -> float | Reading | None:
        """Return the count."""
        bad = view.anomalies.nonfinite
        order = {name: place_of_nan(name, view) for name in bad if name not in _ELSEWHERE} if bad else {}
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


def place_of_nan(name: str, view: View) -> float:
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
    updates, parts = _all_of(first), _all_of(then)
    return bool(first.nonfinite and then.count * updates >= (first.count + 1) * parts > 0)


def _all_of(counted: Histogram) -> int:
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


_NONFINITE_CONDITIONS = (
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

# The reward, and each reward function: flat, dead, solved, gained, fallen, far outside, hacked.

ORDERS = "orders of magnitude"
"""The unit of how improbable something is."""
DIP = 4.0
"""So many spreads a fall of the reward counts at most while it may be a dip."""
_GAIN_FROM = 60
"""The number of rewards before the signal `reward_gain` is computed: the first 30 and the last 30."""
_PLATEAU_FROM = 170
"""The number of rewards before a plateau is judged."""
_FLAT = 0.9
"""The share of completions in groups without a spread from which a step counts as flat."""
_SAME = 1e-6
"""The relative difference below which two means of equal rewards are the same."""
_BLIND = 4.0
"""The orders of magnitude by which a row must be improbable."""
_RECENT = 20
_MANY = 200
"""The number of rewards from which on their extremes say something."""
_ZEROS_FROM = 20
"""The number of first steps that say how often a reward is exactly 0."""
_SELDOM = 0.01
"""The share of exact zeros up to which they are rare."""
_REWARDS = ("rl_reward_dist", "rl_reward_function_dist", "rl_reward_function_mean")


@signal("reward_weights_lost", reads=("rl_reward_function_weight",))
class WeightsLost:
    """Finds reward functions whose weight has become 0. Where weights change the reward begins again."""

    def __init__(self) -> None:
        self._weights: Each[Gone] = Each(partial(Gone, after=1))

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return the functions, each with the step of that."""
        weights = _shares(view, "rl_reward_function_weight")
        if not weights:
            return None
        if run.weights and run.weights != weights:
            run.restarted |= {"reward", "reward_std"}
        run.weights = weights
        counted = [name for name, weight in weights.items() if weight or self._weights.get(name)]  # now, or once
        followed = self._weights.of(counted)
        return {name: gone.since or 0 for name, gone in followed if gone.add(weights[name] != 0.0, view.step)}


_WEIGHED = ("reward_weights_lost",)
read("reward", "reward", "rl_reward_mean", "rl_scores_mean", mean("rl_reward_dist"), "rl_rlhf_reward", after=_WEIGHED)
read("reward_std", "reward", "rl_reward_std", "rl_scores_std", Source("rl_reward_dist", Read.SPREAD), after=_WEIGHED)
read("zero_std_fraction", "fraction", "rl_reward_zero_std_fraction")


class Function:
    """What one reward function has given so far."""

    def __init__(self) -> None:
        self.past = Past()
        """Its means."""
        self.still = Still(tosses=0)
        self.since = 0
        """The step since which it has given nothing but one and the same reward."""
        self._varied = 0
        self._level: float | None = None
        self._lowest: deque[float] = deque(maxlen=_RECENT)
        self._highest: deque[float] = deque(maxlen=_RECENT)
        self._means: deque[float] = deque(maxlen=_RECENT)

    def is_dead(self, value: float, width: float, low: float | None, high: float | None, step: int) -> bool:
        """Take the rewards of a step; return True if it tells completions apart no more, and not by success.

        All rewards have been the same for 8 steps or more, and so often that it is no chance. ``low``, ``high``: the
        lowest and the highest reward, if they are known.
        """
        self.past.add(value)
        if width > ROUNDING * max(1.0, abs(value)):
            self._varied += 1
            self._level = None
            self.still.add(False)
            self._means.append(value)
            if low is not None and high is not None:
                self._lowest.append(low)
                self._highest.append(high)
            return False
        if self._level is None or abs(value - self._level) > _SAME * max(1.0, abs(value)):
            self.still.restart()
            self.since = step
        self._level = value
        improbable = self.still.add(True)
        return self._varied > 0 and self.still.length >= 8 and improbable >= _BLIND and self._unearned(value)

    def _unearned(self, value: float) -> bool:
        """Return True if rewards that are all ``value`` are no success: below its best of late, or reached in one jump.

        Below is a tenth of the usual range; a jump is half of it, since learning takes steps. Where only means are
        known, as in log lines, the best one counts, and no jump is seen.
        """
        if not self._highest:
            low, high = min(self._means), max(self._means)
            return value < high - 0.1 * (high - low)
        low, high = median(self._lowest), median(self._highest)
        return value < high - 0.1 * (high - low) or value - max(list(self._means)[-3:]) > 0.5 * (high - low)


@signal("reward_functions_dead", reads=_REWARDS)
class FunctionsDead:
    """Finds reward functions that once told completions apart, but now give all the same, and not by success."""

    def __init__(self) -> None:
        self._functions = Each(Function)

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return the functions, each with the step since when."""
        given = _given(view)
        if not given:
            return None
        dead = {}
        for name, function in self._functions.of(given):
            run.functions[name] = function.past
            if function.is_dead(*given[name], view.step):
                dead[name] = function.since
        return dead


def _given(view: View) -> dict[str, tuple[float, float, float | None, float | None]]:
    """Return mean, spread, lowest and highest value of each reward function for which mean and spread are known.

    Log lines do not have the lowest and the highest value. Where all rewards come from one model (PPO), that is the
    function; its name is empty.
    """
    seen = rewards(view) if view.seen else None
    if seen:
        ranges = {name: value_range(counted) for name, counted in seen.items()}
        return {
            name: (seen[name].finite_mean, extent, seen[name].minimum, seen[name].maximum)
            for name, extent in ranges.items()
            if extent is not None
        }
    means = view.functions.get("rl_reward_function_mean", {})
    stds = view.functions.get("rl_reward_function_std", {})
    return {
        name: (value, std, None, None)
        for name, value in means.items()
        if value is not None and value == value and (std := stds.get(name)) is not None and std == std
    }


def rewards(view: View) -> dict[str, Histogram]:
    """Return the rewards of the step by reward function; those of all together where no function is known."""
    by_function = {
        series.labels[0]: counted
        for series, counted in view.seen.items()
        if series.metric.series == "rl_reward_function_dist" and counted.count
    }
    together = view.counted.get("rl_reward_dist")
    return by_function or ({"": together} if together is not None and together.count else {})


def _shares(view: View, series: str) -> dict[str, float]:
    """Return the mean of ``series`` in the step by reward function; by an empty name where it has no label."""
    return {
        "".join(one.labels): counted.finite_mean
        for one, counted in view.seen.items()
        if one.metric.series == series and counted.count
    }


@signal("reward_gained", of="reward")
def reward_gained(view: View, run: Context) -> float | None:
    """Return 1 if the reward is clearly above its start and near its best, else 0."""
    if "reward" not in run.fresh:
        return None
    reward = run.past["reward"]
    best = reward.note_best()
    start = reward.start(10)
    if best is None or best <= start + 0.05 * max(abs(start), 1e-9):
        return 0.0
    return float(median(reward.values[-5:]) >= best - 0.1 * abs(best - start))


@signal("flat_share", "fraction", of="reward_std", after=("reward", "zero_std_fraction"), reads=("reward",))
def flat_share(view: View, run: Context) -> float | None:
    """Return the share of completions whose group has no spread of reward; 1 if the whole step has none.

    Tensors are exact where TRL's frac_reward_zero_std is not: that compares a standard deviation with 1e-8, and the
    rounding of equal rewards alone can be more.
    """
    if "reward" not in run.fresh:
        return None
    groups = view.counted.get("rl_reward_group_range_dist")
    if groups is not None and groups.count:
        return groups.counts[0] / groups.count
    reward, width = run.past["reward"], run.new("reward_std")
    share = run.new("zero_std_fraction")
    if width is not None and abs(width) <= ROUNDING * max(1.0, abs(reward.newest)):
        return 1.0
    if share is not None or width is not None:
        return share or 0.0
    if run.past["reward_std"].count or reward.count < 3:
        return None
    return float(len(set(reward.values[-3:])) == 1)


@signal("reward_flat", ORDERS, of="reward_std", after=("reward", "flat_share", "reward_gained"), reads=("flat_share",))
class RewardFlat:
    """How improbable it is that rewards do not differ for so many steps in a row; 0 if that is success.

    Rewards that also stay what they were are stronger evidence: several steps of one group each may all be without a
    spread by chance, but hardly at the same reward.
    """

    keeps = True
    """Equal rewards are equal wherever they are read."""

    def __init__(self) -> None:
        self._flat: Still | None = None
        self._same: Still | None = None

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the orders of magnitude."""
        share = run.new("flat_share")
        if share is None:
            return None
        if self._flat is None or self._same is None:
            self._flat, self._same = Still(run.groups), Still(run.groups)
        last = run.past["reward"].values[-2:]
        flat = share >= _FLAT
        since = view.step - self._flat.length * view.span
        improbable = max(self._flat.add(flat), self._same.add(flat and len(last) == 2 and last[0] == last[1]))
        # The window is 1, as the step since which they are flat is known.
        return Reading(0.0 if run.new("reward_gained") else improbable, subject={"": since} if flat else {}, window=1)


@signal(
    "solved",
    "fraction",
    of="reward_std",
    after=("flat_share", "reward_gained", "copied", "copied_expected"),
    reads=("flat_share",),
)
def solved(view: View, run: Context) -> float | None:
    """Return the share of completions without a spread of reward while the reward is at its best, else 0.

    Copies that the policy would not draw have no spread, and have solved nothing.
    """
    share, copied = run.new("flat_share"), run.new("copied")
    if share is None:
        return None
    copies = copied is not None and copied > (run.new("copied_expected") or 0.0) + COPIES_EXCESS
    return share if run.new("reward_gained") and not copies else 0.0


class Fall:
    """How far the level of a number is below its best: medians over 15 steps, and of at least 5 observations."""

    _KEPT = 100
    _LASTS = 100
    """The steps after which a fall has lasted."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = float("-inf")
        self.lowest = float("inf")
        self._path = 0.0
        """The sum of all differences between a value and the one before it."""
        self._gaps: deque[int] = deque(maxlen=20)
        """The steps from each value to the next."""
        self._step: int | None = None
        self._since: int | None = None
        """The step since which the number has been clearly below its best."""
        self._newest: deque[float] = deque(maxlen=self._KEPT)
        self.since_best = 0
        """The values that the level of a fall is of, and those since it was last near its best."""

    def add(self, past: Past, step: int, span: int) -> float | None:
        """Take the newest value; return how far its level is below its best; None before there are two levels.

        That is in spreads from step to step, and 0 if it is less than 0.4 of the way from the lowest level to the best.
        A dip is no more than `DIP`: it has cost less than 0.7 of what was gained, and may come back within 100 steps.
        ``span``: the steps between two values, where there is one only.
        """
        size = max(5, ceil(15 / max(1, self._apart(step, span))))
        if past.count > 1:
            self._path += abs(past.newest - past.values[-2])
        if past.count < size:
            return None
        now = median(past.values[-size:])
        if self.first is None:
            self.first = now
        self.best, self.lowest = max(self.best, now), min(self.lowest, now)
        if past.count < 2 * size:
            return None
        fall = self.best - now
        self._newest.append(now)
        if fall <= 0.4 * (self.best - self.lowest):
            self._since = None
            return 0.0
        near = (place for place, each in enumerate(reversed(self._newest)) if self.best - each <= 0.2 * fall)
        self.since_best = size + next(near, len(self._newest))
        # Rewards that stand still have no noise any more: what they had over the whole run counts too.
        return self._weighed(fall, max(past.roughness(), self._path / past.count, 1e-9) / NOISE, step)

    def _apart(self, step: int, span: int) -> float:
        """Return the usual number of steps from one value to the next."""
        if self._step is not None:
            self._gaps.append(step - self._step)
        self._step = step
        gaps = self._gaps
        return span if not gaps else gaps[-1] if gaps.count(gaps[-1]) == len(gaps) else median(gaps)

    def _weighed(self, fall: float, noise: float, step: int) -> float:
        far = fall / noise
        self._since = None if far <= DIP else step if self._since is None else self._since
        gained = self.best - (self.first or 0.0)
        lasts = self._since is not None and step - self._since >= self._LASTS
        # Whatever has not clearly gained can only lose what it had.
        return far if lasts or gained <= noise or fall >= 0.7 * gained else min(far, DIP)


@signal("reward_fall", "spreads", of="reward", window=15)
class RewardFall:
    """How far the level of the reward is below its best, in spreads from step to step; see `Fall`.

    Where a penalty outweighs the score tenfold (PPO), the total of both is what the policy learns by, and counts too.
    """

    def __init__(self) -> None:
        self._reward, self._total = Fall(), Fall()
        self._totals = Past()

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the fall."""
        total = view.numbers.get("rl_rlhf_reward")
        if total is not None:
            self._totals.add(total)
        if "reward" not in run.fresh:
            return None
        reward = run.past["reward"]
        fall = self._reward.add(reward, view.step, view.span)
        of_total = None if total is None or fall is None else self._total.add(self._totals, view.step, view.span)
        if fall is None:
            return None
        tiny = of_total is not None and abs(median(reward.values[-15:])) < 0.1 * abs(median(self._totals.values[-15:]))
        if of_total is not None and tiny and of_total > fall:
            return Reading(of_total, "rl_rlhf_reward", window=self._total.since_best)
        return Reading(fall, window=self._reward.since_best)


@signal("reward_gain", "spreads", of="reward")
class RewardGain:
    """How far 30 rewards in a row have ever been above the first 30, in spreads of the first."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._most = float("-inf")

    def __call__(self, view: View, run: Context) -> float | None:
        """Return the gain; None before there are 60 rewards, and in a run that goes on."""
        reward = run.past["reward"]
        if "reward" not in run.fresh or reward.count < _GAIN_FROM or run.resumed:
            return None
        if self._first is None:
            self._first = spread(reward.first)
        start, width = self._first
        self._most = max(self._most, (median(reward.values[-30:]) - start) / max(width, 1e-9))
        return self._most


class Envelope:
    """The range of the values of one reward so far. Outliers stay out of it until they are usual."""

    _ENOUGH = 50
    """The number of values from which on extremes say something."""
    _FAR = 10.0
    """The distance beyond all values before, in multiples of their range, from which on a value is an outlier."""
    _USUAL = 3
    """The number of observations in a row with outliers that make them the usual."""

    def __init__(self) -> None:
        self.low = float("inf")
        self.high = float("-inf")
        self.count = 0
        self.far = 0

    def beyond(self, low: float, high: float, count: int) -> float | None:
        """Take ``count`` values from ``low`` to ``high``; return how far they are beyond those before, in their range.

        The range counts as 1 at least: where a reward that was 0.0 to 0.1 is 1.0 for the first time, the task was
        solved once. None while too few values came before.
        """
        distance = None
        if self.count >= self._ENOUGH:
            distance = max(high - self.high, self.low - low, 0.0) / max(self.high - self.low, 1.0)
        self.far = self.far + 1 if distance is not None and distance > self._FAR else 0
        if self.far in (0, self._USUAL):
            self.low, self.high, self.far = min(self.low, low), max(self.high, high), 0
        self.count += count
        return distance


@signal("reward_outlier", "ranges", reads=("rl_reward_dist", "rl_reward_function_dist"))
class RewardOutlier:
    """How far the most extreme reward of the step is beyond all rewards before, in multiples of their range."""

    def __init__(self) -> None:
        self._envelopes = Each(Envelope)

    def __call__(self, view: View, run: Context) -> float | None:
        """Return the distance."""
        given = {name: counted for name, counted in rewards(view).items() if value_range(counted) is not None}
        distances = (
            envelope.beyond(given[name].minimum, given[name].maximum, given[name].count)
            for name, envelope in self._envelopes.of(given)
        )
        return max((distance for distance in distances if distance is not None), default=None)


class Groups:
    """In how many groups one reward function gives all completions the same."""

    def __init__(self) -> None:
        self._all = Still()
        self._shares: deque[float] = deque(maxlen=10)
        """The shares of groups before the current row of observations without any other group."""
        self.since = 0
        """The step since which it tells no completions of a prompt apart any more; 0 if it does."""

    def is_blind(self, share: float, step: int) -> bool:
        """Add the ``share`` of groups without a spread in ``step``; return True if no chance explains the row.

        Before the row at most half of the groups were like that: a policy that becomes certain gets there slowly.
        """
        improbable = self._all.add(share == 1.0)
        if share < 1.0:
            self._shares.append(share)
            self.since = 0
            return False
        self.since = self.since or step
        shares = self._shares
        return len(shares) == shares.maxlen and sum(shares) <= 0.5 * len(shares) and improbable >= _BLIND


@signal("reward_functions_blind", reads=("rl_reward_function_flat_fraction",))
class FunctionsBlind:
    """Finds reward functions that no longer tell the completions of a prompt apart, while groups differ."""

    def __init__(self) -> None:
        self._groups = Each(Groups)

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return the functions, each with the step since when."""
        shares, given = _shares(view, "rl_reward_function_flat_fraction"), rewards(view)
        if not shares:
            return None
        # All rewards the same: dead, or solved.
        differ = [name for name in shares if name in given and (value_range(given[name]) or 0.0) > ROUNDING]
        followed = self._groups.of(differ)
        return {name: groups.since for name, groups in followed if groups.is_blind(shares[name], view.step)}


@signal(
    "reward_zeros",
    "fraction",
    reads=("rl_reward_function_zero_fraction", "rl_reward_zero_fraction"),
    after=_WEIGHED,
    window=3,
)
class RewardZeros:
    """The largest share of exact zeros in three steps, of a reward function or of the reward.

    Only where zeros were rare in the first 20 steps, and where 0 is not the highest reward.
    """

    def __init__(self) -> None:
        self._shares = Each(Past)

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the share."""
        shares = _shares(view, "rl_reward_function_zero_fraction") | _shares(view, "rl_reward_zero_fraction")
        given = {"": view.counted.get("rl_reward_dist"), **rewards(view)}
        if "reward" in run.restarted:
            self._shares.forget("")
        now = {}
        for name, past in self._shares.of(shares):
            past.add(shares[name])
            seldom = past.count > _ZEROS_FROM and sum(past.first[:_ZEROS_FROM]) <= _SELDOM * _ZEROS_FROM
            counted = given.get(name)
            if seldom and counted is not None and counted.maximum > 0.0:
                now[name] = sum(past.values[-3:]) / 3
        lost = {name: view.step for name, share in now.items() if share > _SELDOM}
        return Reading(max(now.values()), subject=lost) if now else None


@signal("reward_below_range", "ranges", of="reward", reads=("rl_reward_dist",))
class RewardBelowRange:
    """How far the mean reward of the step is below the lowest single reward before, in ranges of all before."""

    def __init__(self) -> None:
        self._lowest, self._highest, self._count = float("inf"), float("-inf"), 0

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the distance; None before there are 200 rewards."""
        counted = view.counted.get("rl_reward_dist")
        if counted is None or not counted.count:
            return None
        width = self._highest - self._lowest
        known = self._count >= _MANY and width > ROUNDING
        distance = (self._lowest - counted.finite_mean) / width if known else None
        if distance is None or distance <= 0.0:
            self._lowest = min(self._lowest, counted.minimum)
            self._highest = max(self._highest, counted.maximum)
            self._count += counted.count
        return None if distance is None else Reading(distance, "rl_reward_dist")


FLAT = (
    condition("reward_flat", "RLNoSignal", Family.REWARD_FLAT, "reward_flat").when(
        level(warning(7.0), critical(10.0)),
        "Rewards do not differ: there is nothing to learn from.",
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
        related=("rl_reward_mean", "rl_reward_std", "rl_reward_zero_std_fraction", "rl_entropy_per_token"),
    ),
    condition("solved", "RLRewardPlateau", Family.REWARD_FLAT, "solved").when(
        level(info(0.9, MOSTLY)),
        "Rewards do not differ, at the best reward of the run: the task is solved.",
        related=("rl_reward_mean", "rl_reward_zero_std_fraction"),
    ),
    condition(
        "reward_function_blind", "RLRewardFunctionDead", Family.REWARD_FLAT, "reward_functions_blind", GROUPS
    ).when(
        found(warning()),
        "A reward function no longer tells the completions of a prompt apart.",
        about="{subject} no longer tells the completions of a prompt apart.",
        related=("rl_reward_function_flat_fraction", "rl_reward_function_dist"),
    ),
    condition("reward_zeroed", "RLRewardFunctionDead", Family.REWARD_FLAT, "reward_zeros", TRAINERS).when(
        level(warning(0.08)),
        "A reward is exactly 0 for some completions, which never happened before.",
        about="{subject} is exactly 0 for some completions, which never happened before.",
        related=("rl_reward_zero_fraction", "rl_reward_function_zero_fraction", "rl_reward_dist"),
    ),
    condition(
        "reward_function_dead", "RLRewardFunctionDead", Family.REWARD_FLAT, "reward_functions_dead", TRAINERS
    ).when(
        found(warning()),
        "A reward function no longer tells completions apart, and the task is not solved.",
        about="{subject} no longer tells completions apart, and the task is not solved.",
        foretold_by=("value_loss_spike", "reward_drop", "reward_below_range"),
        related=("rl_reward_function_mean", "rl_reward_function_std", "rl_reward_function_dist"),
    ),
)
MOVED = (
    condition("reward_outlier", "RLRewardJump", Family.REWARD_JUMP, "reward_outlier").when(
        level(warning(10.0)),
        "A reward is far outside all earlier rewards.",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_std", "rl_grad_norm"),
    ),
    condition("reward_below_range", "RLRewardCollapse", Family.REWARD_DROP, "reward_below_range", TRAINERS).when(
        level(warning(0.1, SOME)),
        "The mean reward is below every earlier reward.",
        related=("rl_reward_dist", "rl_reward_function_dist", "rl_reward_mean"),
    ),
    condition("reward_drop", "RLRewardCollapse", Family.REWARD_DROP, "reward_fall").when(
        level(warning(3.0), critical(DIP)),
        "The reward has fallen far below its best, and stays there.",
        related=("rl_reward_mean", "rl_reward_function_mean", "rl_grad_norm", "rl_policy_ratio_dist"),
    ),
    condition("reward_weight_lost", "RLRewardJump", Family.REWARD_JUMP, "reward_weights_lost", GROUPS).when(
        found(info()),
        "A reward function no longer counts: its weight has become 0.",
        about="{subject} no longer counts: its weight has become 0.",
        related=("rl_reward_function_weight", "rl_reward_mean"),
    ),
    condition("reward_plateau", "RLRewardPlateau", Family.PLATEAU, "reward_gain").when(
        level(warning(0.5, MOSTLY), below=True, after=_PLATEAU_FROM - _GAIN_FROM),
        "The reward has not risen since the run began.",
        related=("rl_reward_mean", "rl_reward_std", "rl_learning_rate", "rl_kl_per_token"),
    ),
)

# What training begins with: prompts, completions and their sampler, the loss mask, advantages and the reference.

COPIES_EXCESS = 0.3
"""By so much the share of copies may be larger than the policy would give."""
_ADVANTAGES, _LOGPROBS, _ENTROPIES = "rl_advantage_dist", "rl_logprob_dist", "rl_entropy_per_token_dist"
_STEPS_OF_PROMPTS = 20
"""The number of steps whose prompts say how short they are by themselves."""
_ROLLOUTS = 10
"""The number of rollouts before sampler and policy are compared."""
_LEAST_NOISE = 0.05
"""The smallest noise of their offset: precision and kernels of a sampler make so many nats a token."""
_SURE = 3.0
"""The number of standard errors that are left out of a mean."""
_TRUNCATING = {
    "top_p": (1.0,),
    "top_k": (0.0, -1.0),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "num_beams": (1.0,),
}
"""Settings of the sampler, each with the values that leave the policy's distribution as it is."""

read("advantage", "", mean(_ADVANTAGES), "rl_advantage_mean")
read("advantage_spread", "", Source(_ADVANTAGES, Read.SPREAD, algorithms=PPO))
read("advantage_reward", "", mean("rl_advantage_reward_correlation"))
read("first_use", "nats", mean("rl_first_use_log_ratio"))
read("loss_mask_wrong", "fraction", mean("rl_loss_mask_wrong_fraction"))
read("prompts_repeated", "fraction", mean("rl_prompts_repeated_fraction"))
read("prompt_end_changed", "fraction", mean("rl_prompt_end_changed_fraction"))
read("prompt_length", "tokens", mean("rl_prompt_length_dist"))
read("copied", "fraction", mean("rl_completion_copied_fraction"))
read("copied_expected", "fraction", mean("rl_completion_copied_expected_fraction"))
read("ref_changed", "fraction", mean("rl_ref_weight_changed_fraction"))
read("ref_dropout", "fraction", mean("rl_ref_dropout"))
read("ref_noise", "nats", mean("rl_ref_logprob_noise"))
read(
    "sampling_difference",
    "nats",
    Source("rl_sampling_logp_difference_mean", variant="logp"),
    mean("rl_sampling_logp_difference_mean", "logp"),
    Source("rl_rollout_kl_per_token", variant="kl"),
    Source("rl_trainer_kl_per_token", variant="kl"),
    derived("log_factor", "rl_sampling_probability_factor_mean", variant="logp"),
    derived("sampler_k1", "rl_sampling_kl_per_token", variant="kl"),
)
read("sampling_ratio", "", "rl_importance_sampling_ratio_mean", "rl_sampling_weight_mean")


@source("log_factor")
def log_factor(view: View, run: Context) -> Reading | None:
    """Return the logarithm of the mean factor between both probabilities of a token: nats, as their difference."""
    series = "rl_sampling_probability_factor_mean"
    factor = view.numbers.get(series)
    return Reading(log(factor), series) if factor is not None and factor > 0.0 else None


@source("sampler_k1")
def sampler_k1(view: View, run: Context) -> Reading | None:
    """Return the absolute k1 estimate of the KL divergence of sampler and trainer, which noise can make negative."""
    series = "rl_sampling_kl_per_token"
    value = view.numbers.get(series)
    return None if value is None else Reading(abs(value), series)


@signal("prompts_stuck", "fraction", of="prompts_repeated")
def prompts_stuck(view: View, run: Context) -> float | None:
    """Return the share of repeated prompts; None where the run began like that, with a small data set."""
    share, past = run.new("prompts_repeated"), run.past["prompts_repeated"]
    return share if share is not None and past.count > START and past.start(START) < 0.5 else None


@signal("prompt_shortness", "fraction", of="prompt_length")
class PromptShortness:
    """The longest prompt of the step over the lowest mean length of a step before: 1 or more in any mixture."""

    def __init__(self) -> None:
        self._shortest = float("inf")

    def __call__(self, view: View, run: Context) -> float | None:
        """Return the share; None before prompts are known."""
        counted, length = view.counted.get("rl_prompt_length_dist"), run.new("prompt_length")
        if counted is None or length is None:
            return None
        known = run.past["prompt_length"].count > _STEPS_OF_PROMPTS and self._shortest > 0.0
        share = counted.maximum / self._shortest if known else None
        if share is None or share >= 1.0:
            self._shortest = min(self._shortest, length)
        return share


@signal("advantage_offset", of="advantage")
def advantage_offset(view: View, run: Context) -> float | None:
    """Return how far the mean advantage is from 0."""
    value = run.new("advantage")
    return None if value is None else abs(value)


@signal("advantage_dead", reads=(_ADVANTAGES,))
def advantage_dead(view: View, run: Context) -> Found | None:
    """Find out that all advantages are the same although rewards differ within a group."""
    advantages, ranges = view.counted.get(_ADVANTAGES), view.counted.get("rl_reward_group_range_dist")
    if advantages is None or ranges is None or not advantages.count or not ranges.count:
        return None
    spread = advantages.maximum - advantages.minimum
    dead = ranges.maximum > ROUNDING and spread <= ROUNDING * min(1.0, ranges.maximum)
    return {"": 0} if dead else {}


@signal("reference_dropout", of="ref_dropout")
def reference_dropout(view: View, run: Context) -> Found | None:
    """Find out that some of the reference's layers drop out."""
    share = run.new("ref_dropout")
    return None if share is None else {"": 0} if share > 0.0 else {}


@signal("copies_excess", "fraction", of="copied", after=("copied_expected",))
def copies_excess(view: View, run: Context) -> float | None:
    """Return how much larger the share of copies is than the policy would give."""
    copied, expected = run.new("copied"), run.new("copied_expected")
    return copied - expected if copied is not None and expected is not None and _faithful(run) else None


@signal("sampler_gap", "nats per token", reads=(_LOGPROBS,), window=20)
class SamplerGap:
    """How far sampler and policy are apart for sure.

    That is the mean of 20 rollouts, less three standard errors; or, sooner, what a `Shift` from 0 says.
    """

    def __init__(self) -> None:
        self._shift = Shift(least=_LEAST_NOISE)

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the distance; None in a step without a rollout, and before enough of them are known."""
        offset = _offset(view, run)
        if offset is None:
            return None
        sudden = self._shift.add(offset)
        if _ENTROPIES not in view.counted:  # a mean of means: lengths that change move it, and no sampler
            sudden = 0.0
        own = self._shift.values
        count = len(own)
        if count >= _ROLLOUTS:
            return Reading(max(sudden, abs(sum(own) / count) - _SURE * deviation(own) / sqrt(count - 1)), _LOGPROBS)
        return Reading(sudden, _LOGPROBS) if sudden else None


def _offset(view: View, run: Context) -> float | None:
    """Return the mean log-probability of tokens that were just sampled plus the mean entropy: 0 but for noise.

    That holds where tokens are drawn from the policy that is scored; with a greedier sampler it is above 0. None where
    the settings say that tokens are drawn from something else, or that some are left out.
    """
    logprobs, rollout = view.counted.get(_LOGPROBS), view.counted.get(_ADVANTAGES)
    if logprobs is None or not logprobs.count or rollout is None or not rollout.count or not _faithful(run):
        return None
    entropies = view.counted.get(_ENTROPIES)
    entropy = entropies.finite_mean if entropies and entropies.count else view.numbers.get("rl_entropy_per_token")
    return None if entropy is None else logprobs.finite_mean + entropy


def _faithful(run: Context) -> bool:
    settings = run.settings
    plain = all(name not in settings or settings[name] in values for name, values in _TRUNCATING.items())
    return plain and not settings.get("mask_truncated_completions")


_DATA = (
    condition("prompts_stuck", "RLPromptsChanged", Family.DATA, "prompts_stuck", TRAINERS).when(
        level(warning(0.9, LASTING)),
        "Every step trains on the same prompts.",
        related=("rl_prompts_repeated_fraction", "rl_prompt_length_dist"),
    ),
    condition("prompts_short", "RLPromptsChanged", Family.DATA, "prompt_shortness", TRAINERS).when(
        level(warning(0.7, SOME), below=True),
        "Prompts have become much shorter.",
        related=("rl_prompt_length_dist", "rl_prompt_end_changed_fraction"),
    ),
    condition("prompt_end_changed", "RLPromptsChanged", Family.DATA, "prompt_end_changed", GROUPS).when(
        level(warning(0.5, SOME)),
        "Prompts end with another token than before.",
        related=("rl_prompt_end_changed_fraction", "rl_prompt_length_dist"),
    ),
    condition("loss_mask_wrong", "RLLossInputsWrong", Family.OBJECTIVE, "loss_mask_wrong", GROUPS).when(
        level(warning(0.25, SOME), critical(0.75, SOME)),
        "The loss mask does not fit the completions.",
        related=("rl_loss_mask_wrong_fraction", "rl_completion_length_dist"),
    ),
    condition("advantage_wrong", "RLLossInputsWrong", Family.OBJECTIVE, "advantage_reward", TRAINERS).when(
        level(warning(0.5, SOME), critical(0.0, LASTING), below=True),
        "Advantages do not follow the rewards they are computed from.",
        related=("rl_advantage_reward_correlation", "rl_advantage_dist", "rl_reward_dist"),
    ),
    condition("old_logprobs_stale", "RLLossInputsWrong", Family.OBJECTIVE, "first_use", GROUPS).when(
        ratio(warning(3.0, SOME), floor=0.01),
        "The old log-probabilities are not those of the policy that sampled.",
        related=("rl_first_use_log_ratio", "rl_policy_ratio_dist"),
    ),
    condition("reference_moved", "RLReference", Family.OBJECTIVE, "ref_changed", TRAINERS).when(
        level(warning(0.001)),
        "The reference model changes although nothing asked for it.",
        related=("rl_ref_weight_changed_fraction", "rl_kl_per_token", "rl_ref_logprob_dist"),
    ),
)
SAMPLER = (
    condition("sampling_jump", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampling_difference", (*GROUP, "ppo")).when(
        ratio(warning({"logp": 5.0, "kl": 20.0}, SOME), of=Own.RECENT, floor={"logp": 0.03, "kl": 0.01}),
        "Sampler and trainer disagree far more than they did.",
        related=("rl_sampling_logp_difference_mean", "rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("sampler_differs", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampler_gap").when(
        level(warning(0.05)),
        "Completions are not drawn from the policy being trained.",
        related=("rl_logprob_dist", "rl_entropy_per_token_dist", "rl_policy_ratio_dist"),
    ),
    condition("completions_copied", "RLSamplerMismatch", Family.KL_NEGATIVE, "copies_excess", GROUPS).when(
        level(warning(COPIES_EXCESS, SOME)),
        "Completions are copies of each other far more often than the policy would draw them.",
        foretold_by=("reward_function_blind",),
        related=("rl_completion_copied_fraction", "rl_completion_copied_expected_fraction", "rl_logprob_dist"),
    ),
    condition("sampling_ratio_low", "RLSamplerMismatch", Family.KL_NEGATIVE, "sampling_ratio", GROUP).when(
        level(warning(0.3, LASTING), below=True),
        "Importance sampling throws most of the samples away.",
        related=("rl_importance_sampling_ratio_mean",),
    ),
)
REFERENCE = (
    condition("reference_dropout", "RLReference", Family.KL_HIGH, "reference_dropout", ("ppo",)).when(
        found(warning()),
        "Dropout is on in the reference.",
        related=("rl_ref_dropout", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
    condition("reference_noisy", "RLReference", Family.KL_HIGH, "ref_noise", GROUP).when(
        level(warning(0.02, SOME)),
        "The reference contradicts itself: dropout is on in it.",
        related=("rl_ref_logprob_noise", "rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
)
ADVANTAGES = (
    condition("advantage_flat", "RLNoSignal", Family.ADVANTAGE, "advantage_spread", PPO).when(
        level(warning(0.01), critical(0.01, SOME), below=True),
        "Advantages do not differ: there is nothing to learn from.",
        related=("rl_advantage_dist", "rl_reward_std", "rl_value_dist", "rl_return_dist"),
    ),
    condition("advantage_dead", "RLNoSignal", Family.ADVANTAGE, "advantage_dead", GROUP).when(
        found(warning(), critical(lasts=SOME)),
        "Advantages are all the same although rewards differ.",
        related=("rl_advantage_dist", "rl_reward_group_range_dist", "rl_reward_std", "rl_kl_per_token"),
    ),
    condition("advantage_off_centre", "RLLossInputsWrong", Family.ADVANTAGE, "advantage_offset", TRAINERS).when(
        level(warning(0.2, LASTING)),
        "Advantages are not centered.",
        related=("rl_advantage_dist", "rl_advantage_mean"),
    ),
)

# The policy: its distance from the reference, its entropy, the size of its updates, and the penalty's coefficient.

_K3 = ("grpo",)
_NOT_K3 = ("rloo", "ppo", "ppo-legacy")
KL_FLOOR = {"k1": 0.25, "k3": 0.25, "sequence": 3.0}
"""Up to this KL, by variant, a policy is near its reference, however fast it got there."""
_AT_START = 0.3
"""The first KL a token that another kernel or precision may make."""
_COEF_LOST = 1e-4
"""The share of its highest value below which a coefficient holds nothing."""
SETTLED = 70
"""In so many steps KL may grow from 0 by any factor, as the policy leaves its reference."""
_MOVING = 10
"""The number of changes in a row that make a coefficient an adaptive one."""
_LITTLE_KL = {"k1": 0.05, "k3": 0.05, "sequence": 1.0}
"""The KL, by variant, below which its growth means nothing."""

read(
    "kl",
    "nats",
    mean("rl_kl_per_token_dist", "k3", _K3),
    mean("rl_kl_per_token_dist", "k1", _NOT_K3),
    Source("rl_kl_per_token", variant="k3", algorithms=_K3),
    Source("rl_kl_per_token", variant="k1"),
    Source("rl_kl_penalty_per_token", variant="k1"),
    Source("rl_kl_k1_per_token", variant="k1"),
    derived("kl", "rl_kl_per_sequence", variant="k1"),
    Source("rl_kl_per_sequence", variant="sequence"),
)
read(
    "kl_signed",
    "nats",
    Source("rl_kl_per_sequence", variant="sequence"),
    mean("rl_kl_per_token_dist", "k1", _NOT_K3),
    Source("rl_kl_per_token", variant="k1", algorithms=_NOT_K3),
)
read("kl_coef", "", "rl_kl_coef", mean("rl_kl_coef"))
read(
    "entropy",
    "nats per token",
    mean("rl_entropy_per_token_dist"),
    "rl_entropy_per_token",
    "rl_update_entropy_per_token",
    "rl_sampled_entropy_per_token",
    Source("rl_logprob_dist", Read.MINUS_MEAN),
)
read("approxkl", "nats per token", "rl_policy_approxkl")
read("ratio", "", mean("rl_policy_ratio_dist"), "rl_policy_ratio_mean")
read("ratio_tail", "fraction", Source("rl_policy_ratio_dist", Read.SHARE, outside=(0.1, 10.0)))
read(
    "clipfrac",
    "fraction",
    Source("rl_policy_clipfrac", variant="token"),
    Source("rl_clip_ratio_region_mean", variant="sequence", algorithms=("rloo",)),
    Source("rl_clip_ratio_region_mean", variant="token"),
    Source("rl_clip_ratio", variant="token"),
)


@source("kl")
def kl(view: View, run: Context) -> Reading | None:
    """Return the KL per token, computed from that per sequence and the mean length."""
    total, length = view.numbers.get("rl_kl_per_sequence"), view.numbers.get("rl_completion_length_mean")
    return Reading(total / length, "rl_kl_per_sequence") if total is not None and length else None


@signal("hacking", of="kl", after=("reward", "flat_share"), window=20)
def hacking(view: View, run: Context) -> float | Reading | None:
    """Return by what factor KL has grown in 20 steps, if the reward has jumped meanwhile; else 0. See `Apart`."""
    kl, reward = run.past["kl"], run.past["reward"]
    if "kl" not in run.fresh or min(kl.count, reward.count) <= SETTLED:
        return None
    if median(kl.values[-5:]) <= KL_FLOOR.get(run.variant["kl"], 0.0) or found_late(run):
        return 0.0
    factor = Apart.factor(kl, reward)
    return Reading(factor, subject=dict.fromkeys(_risen(run), 0)) if factor else 0.0


def _risen(run: Context) -> list[str]:
    """Return the reward function of several that has risen most in 20 steps, as its weight counts it."""
    rises = {
        name: (past.median(10) - past.median(10, 20)) * run.weights.get(name, 1.0)
        for name, past in run.functions.items()
        if past.count > SETTLED
    }
    name = max(rises, key=rises.__getitem__, default="")
    return [name] if len(run.functions) > 1 and name and rises[name] > 0.0 else []


@signal("kl_distance", "nats", of="kl", after=("ref_changed",))
def kl_distance(view: View, run: Context) -> float | None:
    """Return the absolute KL, since a noisy estimate can be negative; None where the reference follows the policy."""
    value, reference = run.new("kl"), run.past["ref_changed"]
    return None if value is None or (reference.count and reference.newest > 0.0) else abs(value)


@signal("kl_first", "nats", of="kl")
def kl_first(view: View, run: Context) -> float | None:
    """Return the very first KL of a run: before any update the policy is the reference. None in a later step."""
    first = view.step <= 1 and run.past["kl"].count == 1 and not run.resumed
    return run.new("kl") if first else None


@signal("kl_first_seen", "nats", of="kl", after=("kl_first",), reads=("rl_kl_per_token_dist",))
def kl_first_seen(view: View, run: Context) -> float | None:
    """Return the very first KL where it was seen at the tensor, which is exact; None for one that is large anyway."""
    first = run.new("kl_first")
    if first is None or "rl_kl_per_token_dist" not in view.counted:
        return None
    return abs(first) if abs(first) <= _AT_START else None


@signal(
    "collapse_signs", "signs", of="entropy", after=("length", "grad_norm", "flat_share", "reward_gained"), window=10
)
def collapse_signs(view: View, run: Context) -> float | None:
    """Count what has collapsed without a gain: entropy, and beside it lengths, gradients and spreads of groups."""
    entropy = run.past["entropy"]
    if "entropy" not in run.fresh or entropy.count <= START:
        return None
    if median(entropy.values[-5:]) >= 0.35 * entropy.start(START) or run.new("reward_gained"):
        return 0.0
    lengths, shares = run.past["length"], run.past["flat_share"]
    # The first length alone: a policy that has collapsed within its first lines has no later one to compare with.
    short = lengths.count > 0 and median(lengths.values[-5:]) < 0.3 * lengths.first[0]
    dead = run.past["grad_norm"].values[-10:].count(0.0) > 5
    flat = shares.count > 0 and median(shares.values[-5:]) >= 0.8
    return 1.0 + short + dead + flat


@signal("kl_coef_share", "fraction", of="kl_coef")
def kl_coef_share(view: View, run: Context) -> float | None:
    """Return the coefficient over its highest value so far; -1 if it has always been negative, None if always 0."""
    coefficient, highest = run.new("kl_coef"), run.past["kl_coef"].high
    if coefficient is None or (highest <= 0.0 and coefficient == 0.0):
        return None
    return coefficient / highest if highest > 0.0 else -1.0


@signal("kl_coef_stuck", "steps", of="kl_coef", after=("kl", "kl_coef_share"))
def kl_coef_stuck(view: View, run: Context) -> float | None:
    """Return for how many steps a coefficient that used to adapt has not changed while KL asks for it, else 0.

    KL asks for it where the coefficient was rising, so that KL was above its target, and KL has not come down; and
    where KL has doubled.
    """
    if run.new("kl_coef") is None:
        return None
    if (run.new("kl_coef_share") or 0.0) < _COEF_LOST:  # it is lost, and stays so
        return 0.0
    coefficient, kl = run.past["kl_coef"], run.past["kl"]
    still = _still_for(coefficient)
    before = coefficient.last(_MOVING + 1, still)
    if not still or len(before) <= _MOVING or any(a == b for a, b in pairwise(before)):
        return 0.0
    if "kl" not in run.fresh or kl.count < coefficient.count:
        return 0.0
    then = max(median(kl.last(_MOVING, still)), _LITTLE_KL[run.variant["kl"]])
    now = median(kl.values[-min(still, 5) :])
    return float(still) if now > (0.9 if before[-1] > before[0] else 2.0) * then else 0.0


def _still_for(past: Past) -> int:
    """Return for how many observations the newest value has been the same as the one before; 0 if it never changed."""
    if past.low == past.high or past.count < 2:
        return 0
    return sum(1 for _ in takewhile(past.newest.__eq__, islice(reversed(past.values), 1, None)))


UPDATES = (
    condition("ratio_high", "RLRatio", Family.POLICY_STEP, "ratio").when(
        level(warning(2.0, SOME), critical(10.0)),
        "The probability ratio of new and old policy is far above 1.",
        stops=False,
        related=("rl_policy_ratio_dist", "rl_policy_approxkl", "rl_clip_ratio_region_mean"),
    ),
    condition("ratio_tail", "RLRatio", Family.POLICY_STEP, "ratio_tail").when(
        level(warning(0.02, SOME), critical(0.2)),
        "Many tokens have a probability ratio below 0.1 or above 10.",
        related=("rl_policy_ratio_dist",),
    ),
    condition("ratio_low", "RLRatio", Family.POLICY_STEP, "ratio").when(
        ratio(warning(0.6, SOME), below=True),
        "The probability ratio of new and old policy is far below its own level.",
        related=("rl_policy_ratio_dist", "rl_policy_approxkl"),
    ),
    condition("approxkl_spike", "RLUpdateTooLarge", Family.POLICY_STEP, "approxkl", PPO).when(
        level(warning(1.0)),
        "One update has moved the policy very far.",
        related=("rl_policy_approxkl", "rl_policy_clipfrac"),
    ),
    condition("approxkl_high", "RLUpdateTooLarge", Family.POLICY_STEP, "approxkl", PPO).when(
        level(warning(0.2, LASTING), critical(1.0, SOME)),
        "Updates move the policy too far.",
        stops=False,
        related=("rl_policy_approxkl", "rl_policy_clipfrac", "rl_policy_ratio_dist"),
    ),
    condition("clipfrac_high", "RLUpdateTooLarge", Family.POLICY_STEP, "clipfrac").when(
        level(warning({"token": 0.3, "sequence": 0.5}, LASTING)),
        "Too much of the updates is clipped.",
        related=("rl_policy_clipfrac", "rl_clip_ratio_region_mean"),
    ),
)
AT_START = (
    condition("kl_at_start", "RLReference", Family.KL_HIGH, "kl_first").when(
        level(
            info({"k1": _AT_START, "k3": _AT_START, "sequence": 5.0}),
            critical({"k1": 2.0, "k3": 2.0, "sequence": 20.0}),
        ),
        "The policy differs from the reference before any update.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_ref_logprob_dist"),
    ),
    condition("reference_differs", "RLReference", Family.KL_HIGH, "kl_first_seen", TRAINERS).when(
        level(info(0.02)),
        "The reference is not quite the policy that training began with.",
        related=("rl_kl_per_token_dist", "rl_ref_logprob_dist"),
    ),
)
DISTANCE = (
    condition("kl_high", "RLKL", Family.KL_HIGH, "kl").when(
        level(
            warning({"k1": 1.2, "k3": 3.0, "sequence": 10.0}, LASTING, learning=True),
            critical({"k1": 4.0, "k3": 5.0, "sequence": 50.0}, LASTING),
        ),
        "The policy is far from the reference.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_kl_per_token_dist", "rl_reward_mean"),
    ),
    condition("kl_jump", "RLKL", Family.KL_HIGH, "kl").when(
        ratio(warning(6.0, LASTING), critical(10.0, MOSTLY), of=Own.RECENT, lag=20, floor=KL_FLOOR, after=SETTLED),
        "The KL divergence to the reference has jumped.",
        related=("rl_kl_per_token", "rl_kl_per_sequence", "rl_grad_norm"),
    ),
    condition("reward_hacking", "RLRewardHacking", Family.KL_HIGH, "hacking").when(
        level(critical(5.0)),
        "The reward rises while KL runs away.",
        about="{subject} rises while KL runs away.",
        foretold_by=("kl_high", "kl_jump"),
        level="kl",
        related=("rl_reward_mean", "rl_kl_per_token", "rl_kl_per_sequence", "rl_completion_length_mean"),
    ),
    condition("kl_negative", "RLSamplerMismatch", Family.KL_NEGATIVE, "kl_signed", _NOT_K3).when(
        level(
            warning({"sequence": -1.0, "k1": -0.05}, SOME),
            critical({"sequence": -1.0, "k1": -0.05}, LASTING),
            below=True,
        ),
        "The KL divergence is clearly below zero.",
        stops=False,
        related=("rl_kl_per_sequence", "rl_kl_per_token", "rl_policy_ratio_dist"),
    ),
    condition("kl_coef_runaway", "RLKLCoefficient", Family.KL_COEF, "kl_coef", ("ppo-legacy", "online-dpo")).when(
        ratio(warning(3.0), critical(30.0)),
        "The adaptive KL coefficient runs away.",
        stops=False,
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_non_score_reward_per_token"),
    ),
    condition(
        "kl_coef_lost", "RLKLCoefficient", Family.OBJECTIVE, "kl_coef_share", (*PPO, "grpo", "rloo", "online-dpo")
    ).when(
        level(warning(_COEF_LOST), critical(-_COEF_LOST), below=True),
        "The coefficient of the KL penalty is 0 or negative.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
    condition("kl_coef_stuck", "RLKLCoefficient", Family.KL_COEF, "kl_coef_stuck", ("ppo-legacy",)).when(
        level(warning(4.5)),
        "The adaptive KL coefficient no longer adapts.",
        related=("rl_kl_coef", "rl_kl_per_sequence", "rl_kl_per_token"),
    ),
)
ENTROPY = (
    condition("entropy_low", "RLEntropy", Family.ENTROPY_LOW, "entropy").when(
        ratio(warning(0.2, LASTING), below=True),
        "Entropy has fallen far below its start.",
        related=("rl_entropy_per_token", "rl_logprob_dist", "rl_reward_std"),
    ),
    condition("entropy_collapsed", "RLEntropy", Family.ENTROPY_LOW, "entropy").when(
        ratio(critical(0.04, LASTING), below=True),
        "Entropy has collapsed: the policy is deterministic.",
        related=("rl_entropy_per_token", "rl_entropy_per_token_dist", "rl_reward_zero_std_fraction"),
    ),
    condition("entropy_high", "RLEntropy", Family.ENTROPY_HIGH, "entropy").when(
        ratio(warning(4.0, LASTING), floor=0.6),
        "Entropy grows.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("entropy_exploded", "RLEntropy", Family.ENTROPY_HIGH, "entropy").when(
        ratio(critical(4.0, MOSTLY), floor=1.5),
        "Entropy has exploded: the policy writes noise.",
        related=("rl_entropy_per_token", "rl_reward_mean", "rl_completion_length_mean"),
    ),
    condition("collapsed", "RLEntropy", Family.ENTROPY_LOW, "collapse_signs").when(
        level(critical(2.0, MOSTLY)),
        "The policy has collapsed: entropy fell, and other signals with it, without any gain in reward.",
        related=("rl_entropy_per_token", "rl_completion_length_mean", "rl_grad_norm", "rl_reward_zero_std_fraction"),
    ),
)
_POLICY_FROZEN = (
    condition("policy_frozen", "RLPolicyFrozen", Family.PLATEAU, "kl_distance").when(
        level(warning(1e-06, MOSTLY), below=True),
        "The policy does not move.",
        related=("rl_kl_per_token", "rl_learning_rate", "rl_grad_norm"),
    ),
)

# The update: gradients, the learning rate, the weights and what the optimizer knows of them, the value loss.

_CHANGED, _GRADIENTS = "rl_weight_changed_fraction", "rl_grad_norm_dist"
_UNTIL_MOVED = 20
"""The number of looks after which weights that have never changed are frozen; before it the rate may be tiny yet."""
_WARM_RATE = 0.1
"""The share of its highest value above which a learning rate must change weights in bf16 too."""
_LOOKS = 10
"""The number of looks before the usual share of weights that change is known."""

read("grad_norm", "", mean(_GRADIENTS), "rl_grad_norm")
read("value_loss", "squared reward", mean("rl_value_loss_dist"), "rl_value_loss")
read("learning_rate", "", "rl_learning_rate")
read("not_in_optimizer", "fraction", mean("rl_optimizer_missing_fraction"))
read("gradient_zero", "fraction", mean("rl_gradient_zero_fraction"))
read("optimizer_updates", "updates", mean("rl_optimizer_updates"))
read("weights_changed", "fraction", mean(_CHANGED))
read("weight_norm", "", mean("rl_weight_norm"))
read("update_size", "", mean("rl_weight_update_size"))


@signal("gradient_dead", ORDERS, of="grad_norm", after=("reward_std", "zero_std_fraction"), window=20)
class GradientDead:
    """How improbable it is that the gradient is exactly 0 for so many steps in a row although rewards differ.

    The gradient may be of one step of several that the rewards are of, or of a part of the groups. By chance it is 0
    then with at most the probability that a group has no spread.
    """

    keeps = True
    """Zero is zero wherever it is read."""

    def __init__(self) -> None:
        self._still = Still()

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the orders of magnitude; None in a step whose rewards do not differ."""
        gradient, width = run.new("grad_norm"), run.new("reward_std")
        if gradient is None or width is None or abs(width) <= ROUNDING:
            return None
        flat = run.new("zero_std_fraction")
        improbable = self._still.add(gradient == 0.0, 0.5 if flat is None else flat)
        return Reading(improbable, window=max(1, self._still.length))


@signal("learning_rate_share", "fraction", of="learning_rate")
def learning_rate_share(view: View, run: Context) -> float | None:
    """Return the learning rate over its highest value so far; None if no logged value was above 0."""
    rate, highest = run.new("learning_rate"), run.past["learning_rate"].high
    return rate / highest if rate is not None and highest > 0.0 else None


@signal("learning_rate_step", of="learning_rate")
def learning_rate_step(view: View, run: Context) -> float | None:
    """Return the learning rate over the one before; None before there are three, and after 0."""
    rate, past = run.new("learning_rate"), run.past["learning_rate"]
    return rate / past.values[-2] if rate is not None and past.count > 2 and past.values[-2] > 0.0 else None


@signal("weights_still", after=("learning_rate",), reads=(_CHANGED, _GRADIENTS))
class WeightsStill:
    """Finds out that no weight has changed since the last look although gradients were not zero.

    None where nothing is to be expected: without a gradient, at the low end of a schedule (in bf16 such updates are
    lost in rounding), and before weights have ever changed.
    """

    def __init__(self) -> None:
        self._pushed = False
        """True if all gradients since the weights were last looked at were not zero, and there was one."""
        self._looks = 0
        self._moved = False
        """True if a weight has ever changed."""

    def __call__(self, view: View, run: Context) -> Found | None:
        """Return what was found."""
        gradients, changed = view.counted.get(_GRADIENTS), view.counted.get(_CHANGED)
        here = gradients is not None and gradients.count > 0 and gradients.minimum > 0
        if changed is None or not changed.count:
            self._pushed = self._pushed and (here or gradients is None)
            return None
        pushed, self._pushed = self._pushed, here
        self._looks += 1
        if changed.maximum > 0:
            self._moved = True
            return {}
        moved = self._moved or self._looks > _UNTIL_MOVED
        return {"": 0} if pushed and here and moved and not _is_waning(run) else None


def _is_waning(run: Context) -> bool:
    """Return True at the low end of a schedule of the learning rate, before it is 0."""
    rate = run.past["learning_rate"]
    return bool(rate.count) and 0 < rate.newest < _WARM_RATE * rate.high


@signal("weights_rounded", "fraction", of="weights_changed")
def weights_rounded(view: View, run: Context) -> float | None:
    """Return the share of the weights that change; None where none does, as then they are frozen."""
    return run.new("weights_changed") or None


@signal("optimizer_missing", "fraction", of="not_in_optimizer", after=("weights_changed", "learning_rate"))
def optimizer_missing(view: View, run: Context) -> float | None:
    """Return the share of the trained tensors that the optimizer has lost since the start, or 1 if it never had any.

    An optimizer that works on copies has none of them either: then weights that do not change must prove it.
    """
    share, changed = run.new("not_in_optimizer"), run.new("weights_changed")
    if share is None:
        return None
    first = run.past["not_in_optimizer"].first[0]
    if share < 1.0 or first < 1.0:
        return max(0.0, share - first)
    rate = max(run.past["learning_rate"].values[-2:], default=0.0)
    return None if changed is None else float(changed == 0.0 and rate > 0.0)


@signal("gradients_lost", "fraction", of="gradient_zero")
def gradients_lost(view: View, run: Context) -> float | None:
    """Return by how much more of the tensors have no gradient than in any of the first steps; None in those."""
    share, past = run.new("gradient_zero"), run.past["gradient_zero"]
    return None if share is None or past.count <= _LOOKS else max(0.0, share - max(past.first[:_LOOKS]))


@signal("weight_norm_step", of="weight_norm")
def weight_norm_step(view: View, run: Context) -> float | None:
    """Return by which part of itself the norm of the weights has changed since the last look."""
    norm, before = run.new("weight_norm"), run.past["weight_norm"].last(1, 1)
    return abs(norm / before[0] - 1.0) if norm is not None and before and before[0] > 0.0 else None


@signal("update_per_rate", of="update_size", after=("learning_rate", "weights_changed", "flat_share"))
def update_per_rate(view: View, run: Context) -> float | None:
    """Return the size of the last update over its learning rate; None where most of it is lost in rounding."""
    if untaught(run):
        return None
    size, share = run.new("update_size"), run.new("weights_changed")
    rate = max(run.past["learning_rate"].values[-2:], default=0.0)  # the update was made in the step before
    return size / rate if size is not None and share is not None and share > 0.5 and rate > 0.0 else None


@signal("optimizer_restart", of="optimizer_updates")
def optimizer_restart(view: View, run: Context) -> Found | None:
    """Find out that the optimizer counts fewer updates than before, or half as many as a run that resumes has steps.

    A trainer may take several updates a step; a scaler of fp16 skips a few.
    """
    count, past = run.new("optimizer_updates"), run.past["optimizer_updates"]
    if count is None:
        return None
    fewer = count < past.values[-2] if past.count > 1 else run.resumed and count < view.step / 2
    return {"": 0} if fewer else {}


WEIGHTS = (
    condition("gradients_lost", "RLWeights", Family.OPTIMIZER, "gradients_lost", TRAINERS).when(
        level(warning(0.05, SOME)),
        "Some of the weights no longer get a gradient.",
        related=("rl_gradient_zero_fraction", "rl_weight_changed_fraction", "rl_grad_norm"),
    ),
    condition("weight_norm_jump", "RLWeights", Family.WEIGHTS, "weight_norm_step", TRAINERS).when(
        ratio(warning(8.0), of=Own.RECENT, floor=0.08),
        "The norm of the trained weights has jumped.",
        related=("rl_weight_norm", "rl_weight_update_size", "rl_weight_changed_fraction"),
    ),
    condition("weights_moved", "RLWeights", Family.WEIGHTS, "update_per_rate", TRAINERS).when(
        ratio(warning(8.0), of=Own.RECENT, after=20),
        "The weights have moved much farther than an update moves them.",
        related=("rl_weight_update_size", "rl_learning_rate", "rl_weight_norm"),
    ),
    condition("optimizer_restarted", "RLWeights", Family.WEIGHTS, "optimizer_restart", TRAINERS).when(
        found(warning()),
        "The optimizer has lost its moments.",
        related=("rl_optimizer_updates", "rl_weight_update_size", "rl_learning_rate"),
    ),
    condition("optimizer_incomplete", "RLPolicyFrozen", Family.OPTIMIZER, "optimizer_missing", TRAINERS).when(
        level(warning(0.0, SOME), critical(0.99, SOME)),
        "Some of the trained weights are not in the optimizer.",
        foretold_by=("weights_frozen", "policy_frozen"),
        related=("rl_optimizer_missing_fraction", "rl_weight_changed_fraction"),
    ),
    condition("weights_barely_change", "RLPolicyFrozen", Family.OPTIMIZER, "weights_rounded", TRAINERS).when(
        level(info(0.05, LASTING), below=True),
        "Hardly any weight changes: most updates are lost to rounding.",
        related=("rl_weight_changed_fraction", "rl_learning_rate"),
    ),
)
GRADIENT = (
    condition("gradient_dead", "RLNoSignal", Family.GRAD_DEAD, "gradient_dead", TRAINERS).when(
        level(warning(1.9, SOME), critical(5.5)),
        "The gradient is exactly zero although rewards differ.",
        related=("rl_grad_norm", "rl_reward_std", "rl_completion_truncated_fraction"),
    ),
    condition("learning_rate_zero", "RLPolicyFrozen", Family.LR, "learning_rate_share").when(
        level(warning(1e-06, MOSTLY), below=True),
        "The learning rate is zero.",
        related=("rl_learning_rate",),
    ),
    condition("learning_rate_jump", "RLUpdateTooLarge", Family.LR, "learning_rate_step").when(
        level(warning(5.0)),
        "The learning rate has jumped.",
        related=("rl_learning_rate",),
    ),
    condition("grad_spike", "RLGradient", Family.GRAD, "grad_norm").when(
        ratio(warning(100.0), of=Own.RECENT, quantile=0.9, floor=1e-06, after=20),
        "The gradient norm has spiked.",
        related=("rl_grad_norm", "rl_reward_std"),
    ),
    condition("grad_explosion", "RLGradient", Family.GRAD, "grad_norm").when(
        ratio(critical(5.0, SOME), of=Own.RECENT, quantile=0.9, floor=1e-06),
        "The gradient norm explodes.",
        related=("rl_grad_norm", "rl_reward_std", "rl_sampling_logp_difference_mean"),
    ),
)
VALUE = (
    condition("value_loss_spike", "RLValueLoss", Family.VALUE, "value_loss", PPO).when(
        ratio(warning(20.0), critical(5.0, SOME), of=Own.RECENT, quantile=0.9, floor=1e-06),
        "The value loss spikes.",
        stops=False,
        related=("rl_value_loss", "rl_return_mean", "rl_value_mean"),
    ),
)
_WEIGHTS_FROZEN = (
    condition("weights_frozen", "RLPolicyFrozen", Family.OPTIMIZER, "weights_still", TRAINERS).when(
        found(warning(lasts=SOME), critical(lasts=MOSTLY)),
        "The weights no longer change, although there is a gradient.",
        related=("rl_weight_changed_fraction", "rl_weight_norm", "rl_grad_norm", "rl_learning_rate"),
    ),
)

# Completions: how long they are, and how they end.

_MORE_CUT = 0.3
_NEARLY_ALL = 0.9
"""The rise of the share of truncated completions, and the share, from which on it counts as one of the others."""

read("length", "tokens", mean("rl_completion_length_dist"), "rl_completion_length_mean")
read("length_spread", "tokens", Source("rl_completion_length_dist", Read.SPREAD), "rl_completion_length_std")
read("truncated", "fraction", "rl_completion_truncated_fraction")


@signal("truncation_rise", "fraction", of="truncated")
def truncation_rise(view: View, run: Context) -> float | None:
    """Return by how much more of the completions are truncated than at the start of the run.

    Once nearly all are, it is the share of those that were not then: all of them is 1, however many there were.
    """
    truncated, past = run.new("truncated"), run.past["truncated"]
    if truncated is None or past.count <= START:
        return None
    rise = truncated - past.start(START)
    return rise / (1.0 - past.start(START)) if rise > _MORE_CUT and truncated >= _NEARLY_ALL else rise


@signal("eos_missing", "fraction", reads=("rl_eos_tokens",))
class EosMissing:
    """The share of responses without an end token (modern PPO)."""

    def __init__(self) -> None:
        self._episode = 0.0

    def __call__(self, view: View, run: Context) -> float | None:
        """Return the share."""
        ends, episode = view.numbers.get("rl_eos_tokens"), view.numbers.get("rl_episode")
        if ends is None:
            return None
        lengths = view.counted.get("rl_completion_length_dist")
        responses = lengths.count if lengths else (episode or 0.0) - self._episode
        self._episode = episode or self._episode
        return max(0.0, 1.0 - ends / responses) if responses > 0 else None


@signal("same_length", "fraction", of="length", after=("length_spread",), reads=("length_spread",))
def same_length(view: View, run: Context) -> float | None:
    """Return the spread of the completion lengths over their mean."""
    width, length = run.new("length_spread"), run.new("length")
    return None if width is None or not length else width / length


_LENGTHS = (
    condition("truncation", "RLLength", Family.TRUNCATION, "truncation_rise").when(
        level(warning(0.3, MOSTLY), critical(0.6, MOSTLY)),
        "Completions are cut off at the length limit.",
        related=("rl_completion_truncated_fraction", "rl_completion_length_mean", "rl_completion_length_dist"),
    ),
    condition("eos_missing", "RLLength", Family.TRUNCATION, "eos_missing", ("ppo",)).when(
        level(warning(0.3, SOME), critical(0.9, LASTING)),
        "Responses have no end token.",
        stops=False,
        related=("rl_eos_tokens", "rl_completion_length_dist"),
    ),
    condition("length_low", "RLLength", Family.LENGTH, "length").when(
        ratio(warning(0.3, LASTING), critical(0.1, LASTING), below=True),
        "Completions have become much shorter.",
        foretold_by=(
            "kl_high",
            "kl_jump",
            "entropy_low",
            "entropy_collapsed",
            "value_loss_spike",
            "reward_flat",
            "reward_zeroed",
        ),
        related=("rl_completion_length_mean", "rl_completion_length_dist", "rl_reward_mean"),
        stops=False,
    ),
    condition("length_high", "RLLength", Family.LENGTH, "length").when(
        ratio(warning(3.0, LASTING)),
        "Completions have become much longer.",
        related=("rl_completion_length_mean", "rl_completion_truncated_fraction", "rl_reward_mean"),
    ),
    condition("same_length", "RLLength", Family.LENGTH, "same_length").when(
        level(warning(0.02, MOSTLY), below=True),
        "All completions have the same length.",
        related=("rl_completion_length_dist", "rl_completion_length_std", "rl_entropy_per_token"),
    ),
)

# The pace: how long steps take, by how much that grew, and which part of a step grew.

_SLOW = 2.0
"""How many times the usual a step takes whose slowest part is looked for."""
_PHASE_SECONDS = "rl_phase_time_seconds"
_FUNCTION_SECONDS = "rl_reward_function_time_seconds"


@signal("step_time", "seconds")
class StepTime:
    """The seconds that the step took; it is about the part that makes it slow, if it is."""

    def __init__(self) -> None:
        self._parts: Each[Past] = Each(Past)
        """The seconds of each phase of a step, and of each reward function in it."""
        self._slow: deque[int] = deque()
        """Those of the last ten steps that took far longer than usual."""

    def __call__(self, view: View, run: Context) -> Reading | None:
        """Return the seconds."""
        seconds, past = view.gap, run.past["step_time"]
        if not view.advanced or seconds is None:
            return None
        parts, slow = _parts(view), self._slow
        grown: dict[str, int] = {}
        while slow and slow[0] < view.step - 10:
            slow.popleft()
        if slow or seconds > _SLOW * past.newest:
            before = past.last(30, len(slow))
            usual = median(before) if before else seconds
            if seconds > _SLOW * usual:
                slow.append(view.step)
                by = {  # by how much each part is slower than before
                    name: part - median(of_part.last(30, len(slow) - 1))
                    for name, part in parts.items()
                    if (of_part := self._parts.get(name)) is not None and of_part.count > len(slow)
                }
                most = max(by, key=by.__getitem__, default="")
                if most and by[most] > (seconds - usual) / 2:
                    grown = {most: slow[0]}
        for name, past_of_part in self._parts.of(parts):
            past_of_part.add(parts[name])
        return Reading(seconds, subject=grown)


@signal("longest_pause", "seconds", of="step_time", reads=())
def longest_pause(view: View, run: Context) -> float | Reading | None:
    """Return the seconds that the step took, or all of those without a step if the run counted as hung meanwhile."""
    took = run.new("step_time")
    if view.stalled is None:
        return None if took is None else Reading(took, subject=run.subjects.get("step_time", {}))
    seconds, phase = view.stalled
    return Reading(max(seconds, took or 0.0), subject={phase: view.step})


def _parts(view: View) -> dict[str, float]:
    """Return the seconds of each part of the step: its phases, and the reward functions apart from theirs."""
    phases = view.phases or view.functions.get(_PHASE_SECONDS, {})
    if not (phases or view.seen):
        return {}
    parts = {name: seconds for name, seconds in phases.items() if seconds is not None and name not in ASIDE}
    called = (pair for pair in view.seen.items() if pair[0].metric.series == _FUNCTION_SECONDS)
    calls = {series.labels[0]: counted.positive_sum for series, counted in called}
    if "reward" in parts:
        parts["reward"] = max(0.0, parts["reward"] - sum(calls.values()))
    return {**parts, **calls}


_PACE = (
    condition("step_slow", "RLStepsSlow", Family.SLOW, "step_time").when(
        ratio(warning(4.0, MOSTLY), of=Own.RECENT, lag=10, floor=0.5, after=20),
        "Steps have become much slower.",
        about="Steps have become much slower, most of all in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds", "rl_completion_length_mean"),
    ),
    condition("step_stalled", "RLStepsSlow", Family.STALL, "longest_pause").when(
        ratio(warning(30.0), of=Own.RECENT, floor=60.0),
        "The run stood still for a while.",
        about="The run stood still for a while, in {subject}.",
        related=("rl_step_duration_seconds", "rl_phase_time_seconds"),
    ),
)


# All of them

CONDITIONS: tuple[Condition, ...] = (
    *_NONFINITE_CONDITIONS,
    *_DATA,
    *WEIGHTS,
    *GRADIENT,
    *UPDATES,
    *SAMPLER,
    *AT_START,
    *REFERENCE,
    *DISTANCE,
    *ENTROPY,
    *VALUE,
    *ADVANTAGES,
    *FLAT,
    *MOVED,
    *_WEIGHTS_FROZEN,
    *_POLICY_FROZEN,
    *_LENGTHS,
    *_PACE,
    *EVALUATION,
)
CONDITION_NAMED = {condition.name: condition for condition in CONDITIONS}
BY_ALERT = {
    alert: tuple(condition for condition in CONDITIONS if condition.alert == alert)
    for alert in dict.fromkeys(condition.alert for condition in CONDITIONS)
}
"""The conditions that raise each alert, in the order of the first of them."""


def ordered(signals: Iterable[Signal]) -> tuple[Signal, ...]:
    """Return the ``signals`` in the order of evaluation: each after those that it is computed from.

    Raises:
        ValueError: a name is declared twice, is not known, or is computed from itself.
    """
    declared = list(signals)
    named = {signal.name: signal for signal in declared}
    if len(named) < len(declared):
        twice = next(each.name for each in declared if named[each.name] is not each)
        raise ValueError(f"the signal {twice} is declared twice")
    order: dict[str, Signal] = {}

    def place(signal: Signal, above: tuple[str, ...]) -> None:
        if signal.name in above:
            raise ValueError(f"{signal.name} is computed from itself: {' of '.join((*above, signal.name))}")
        for name in filter(None, (signal.of, *signal.after)):
            if name not in named:
                raise ValueError(f"{signal.name} is computed from {name}, which is not declared")
            place(named[name], (*above, signal.name))
        order.setdefault(signal.name, signal)

    for each in declared:
        place(each, ())
    return tuple(order.values())


SIGNALS = ordered(declare.SIGNALS)
"""All signals, in the order of evaluation."""
SIGNAL_NAMED = {signal.name: signal for signal in SIGNALS}


@cache
def series_of(signal: str) -> tuple[str, ...]:
    """Return the Prometheus names at which ``signal`` is read: its own, or those of the signal it is derived from."""
    known = SIGNAL_NAMED[signal]
    own = tuple(source.series for source in known.sources if source.read is not Read.DERIVED)
    return own or NONFINITE.get(signal) or (series_of(known.of) if known.of else ())


def alerts_on(metric: Metric) -> list[str]:
    """Return the alerts that ``metric`` is judged by, in the order of the table."""
    names = [condition.alert for condition in CONDITIONS if metric.series in series_of(condition.signal)]
    return list(dict.fromkeys(names))


class ShownSeries(NamedTuple):
    """A series at which a number may be read. ``limited``: the limits of the signal are in its unit."""

    series: str
    limited: bool


@cache
def sources(shown: Shown) -> tuple[ShownSeries, ...]:
    """Return where a number is read, the best first: gauges, which agree with the trainer's log, then histograms."""
    if shown.series or not shown.signal:
        return tuple(ShownSeries(name, bool(shown.signal)) for name in shown.series)
    series, limited = [], True
    for at in SIGNAL_NAMED[shown.signal].sources:
        if at.read is Read.DERIVED:
            limited = False  # what comes after it has another unit
        elif at.read in (Read.VALUE, Read.MEAN):
            series.append(ShownSeries(at.series, limited))
    unique = {one.series: one for one in reversed(series)}
    order = [unique[name] for name in dict.fromkeys(one.series for one in series)]
    return tuple(sorted(order, key=lambda one: (not one.limited, NAMED[one.series].kind is Kind.HISTOGRAM)))
