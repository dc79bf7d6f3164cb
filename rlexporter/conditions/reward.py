"""The reward, and each reward function: flat, dead, solved, gained, fallen, far outside, hacked."""

from __future__ import annotations

from collections import deque
from functools import partial
from math import ceil
from statistics import median

from rlexporter.conditions.data import COPIES_EXCESS
from rlexporter.conditions.declare import GROUPS, TRAINERS, condition, mean, read, signal
from rlexporter.conditions.detectors import MOSTLY, SOME, Each, Gone, Still, critical, found, info, level, warning
from rlexporter.conditions.past import NOISE, Past, spread
from rlexporter.conditions.view import ROUNDING, Context, Found, Reading, View, value_range
from rlexporter.model.condition import Family, Read, Source
from rlexporter.model.histogram import Histogram

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
        followed = self._weights.of(weights)
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
