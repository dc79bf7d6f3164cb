"""Derived signals of the reward and of each reward function: lost, flat, solved, gained."""

from __future__ import annotations

from statistics import median

from rlexporter.catalog.conditions import COPIES_EXCESS, REWARD_GAIN_FROM
from rlexporter.conditions.evidence import UNIT, Varied
from rlexporter.conditions.past import Past, spread
from rlexporter.conditions.view import MAX_FUNCTIONS, ROUNDING, Declared, Memory, View, value_range
from rlexporter.model.histogram import Histogram

declared = Declared()

_REWARDS = ("rl_reward_dist", "rl_reward_function_dist", "rl_reward_function_mean")
_FLAT = 0.9
"""The share of completions in groups without a spread from which a step counts as flat."""


@declared.signal("reward_lost", of="reward", reads=())
def reward_lost(view: View, memory: Memory) -> float | None:
    """Return 1 if every reward of the step was None, else 0."""
    none, seen = view.anomalies.undefined.get("rl_reward_dist", 0), view.counted.get("rl_reward_dist")
    if seen is not None or none:
        return float(bool(none) and (seen is None or not (seen.count or seen.nonfinite)))
    if view.anomalies.undefined.get("rl_reward_mean"):
        return 1.0
    return 0.0 if "reward" in memory.fresh else None


@declared.signal("reward_function_lost", unit="reward functions", reads=("rl_reward_function_mean",))
def reward_function_lost(view: View, memory: Memory) -> float | None:
    """Count reward functions that gave no number after they had always given some. Uses log lines only."""
    if "rl_reward_dist" in view.counted:
        return None  # the tensor tells None and NaN apart
    lost: dict[str, int] = {}
    functions = view.functions.get("rl_reward_function_mean", {})
    for name, value in functions.items():
        if name not in memory.given and len(memory.given) >= MAX_FUNCTIONS:
            continue
        given = memory.given.get(name, 0)
        if value is not None:
            memory.given[name] = given + (given >= 0)
        elif given < 10:
            memory.given[name] = -1
        else:
            lost[name] = view.step
    memory.about(lost)
    return float(len(lost)) if functions else None


@declared.signal("reward_functions_dead", unit="reward functions", reads=_REWARDS)
def reward_functions_dead(view: View, memory: Memory) -> float | None:
    """Count reward functions that once told completions apart, but now give all the same, and not by success.

    They have done so for 8 observations or more, and for so many that it is no chance (0.01 %), as often as they told
    completions apart before.
    """
    given = _given(view)
    dead: dict[str, int] = {}
    for name, (mean, width, low, high) in given.items():
        if name not in memory.functions and len(memory.functions) >= MAX_FUNCTIONS:
            continue
        past, varied = memory.functions.get(name), memory.varied.get(name)
        if past is None or varied is None:
            past, varied = memory.functions[name], memory.varied[name] = Past(), Varied()
        past.add(mean)
        if width <= ROUNDING * max(1.0, abs(mean)):
            memory.flat_for[name] = memory.flat_for.get(name, 0) + 1
            varied.add_flat(mean, view.step)
            if varied.constant >= 8 and varied.chance(past.count) < 1e-4 and varied.unearned(mean):
                dead[name] = varied.since
        else:
            memory.flat_for[name] = 0
            varied.add(mean, low, high)
    memory.about(dead)
    return float(len(dead)) if given else None


def _given(view: View) -> dict[str, tuple[float, float, float | None, float | None]]:
    """Return mean, spread, lowest and highest value of each reward function for which mean and spread are known.

    Log lines do not have the lowest and the highest value. Where all rewards come from one model (PPO), that is the
    function; its name is empty.
    """
    seen = rewards(view)
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
        name: (mean, std, None, None)
        for name, mean in means.items()
        if mean is not None and mean == mean and (std := stds.get(name)) is not None and std == std
    }


def rewards(view: View) -> dict[str, Histogram]:
    """Return the rewards of the step by reward function; those of all together where no function is known."""
    if not view.seen:
        return {}
    by_function = {
        series.labels[0]: counted
        for series, counted in view.seen.items()
        if series.metric.series == "rl_reward_function_dist" and counted.count
    }
    together = view.counted.get("rl_reward_dist")
    return by_function or ({"": together} if together is not None and together.count else {})


def flat_groups(view: View) -> tuple[int, int] | None:
    """Return the numbers of groups whose rewards are all equal, and of all groups; None without tensors.

    It is exact where TRL's frac_reward_zero_std is not: that compares a standard deviation with 1e-8, and the rounding
    of equal rewards alone can be more.
    """
    ranges = view.counted.get("rl_reward_group_range_dist")
    return (ranges.counts[0], ranges.count) if ranges is not None and ranges.count else None


@declared.signal("reward_gained", of="reward")
def reward_gained(view: View, memory: Memory) -> float | None:
    """Return 1 if the reward is clearly above its start and near its best, else 0."""
    if "reward" not in memory.fresh:
        return None
    reward = memory.past["reward"]
    best = reward.note_best()
    start = reward.start(10)
    if best is None or best <= start + 0.05 * max(abs(start), 1e-9):
        return 0.0
    return float(median(reward.last(5)) >= best - 0.1 * abs(best - start))


@declared.signal(
    "flat_share", unit="fraction", of="reward_std", after=("reward", "zero_std_fraction"), reads=("reward",)
)
def flat_share(view: View, memory: Memory) -> float | None:
    """Return the share of completions whose group has no spread of reward; 1 if the whole step has none."""
    if "reward" not in memory.fresh:
        return None
    groups = flat_groups(view)
    if groups is not None:
        return groups[0] / groups[1]
    reward, width = memory.past["reward"], memory.new("reward_std")
    share = memory.new("zero_std_fraction")
    if width is not None and abs(width) <= ROUNDING * max(1.0, abs(reward.newest)):
        return 1.0
    if share is not None or width is not None:
        return share or 0.0
    if memory.past["reward_std"].count or reward.count < 3:
        return None
    return float(len(set(reward.last(3))) == 1)


@declared.signal(
    "reward_flat",
    unit=UNIT,
    of="reward_std",
    after=("reward", "flat_share", "reward_gained"),
    reads=("flat_share",),
    window=20,
)
def reward_flat(view: View, memory: Memory) -> float | None:
    """Return how improbable it is that rewards do not differ for so many steps in a row; 0 if that is success.

    Rewards that also stay what they were are stronger evidence: several steps of one group each may all be without a
    spread by chance, but hardly at the same reward.
    """
    share = memory.new("flat_share")
    if share is None:
        return None
    last = memory.past["reward"].last(2)
    flat = share >= _FLAT
    memory.window = 1  # as the step since which they are flat is known
    if flat:
        memory.about({"": view.step - memory.flat.length * view.span})
    improbable = max(memory.flat.add(flat), memory.same.add(flat and len(last) == 2 and last[0] == last[1]))
    return 0.0 if memory.new("reward_gained") else improbable


@declared.signal(
    "solved",
    unit="fraction",
    of="reward_std",
    after=("flat_share", "reward_gained", "copied", "copied_expected"),
    reads=("flat_share",),
)
def solved(view: View, memory: Memory) -> float | None:
    """Return the share of completions without a spread of reward while the reward is at its best, else 0.

    Copies that the policy would not draw have no spread, and have solved nothing.
    """
    share, copied = memory.new("flat_share"), memory.new("copied")
    if share is None:
        return None
    copies = copied is not None and copied > (memory.new("copied_expected") or 0.0) + COPIES_EXCESS
    return share if memory.new("reward_gained") and not copies else 0.0


@declared.signal("reward_fall", unit="spreads", of="reward", window=15)
def reward_fall(view: View, memory: Memory) -> float | None:
    """Return how far the level of the reward is below its best, in spreads from step to step; see `Levels.fall`.

    Where a penalty outweighs the score tenfold (PPO), the total of both is what the policy learns by, and counts too.
    """
    total = view.numbers.get("rl_rlhf_reward")
    if total is not None:
        memory.totals.add(total)
    if "reward" not in memory.fresh:
        return None
    reward = memory.past["reward"]
    fall = memory.levels.fall(reward, view.step, view.span)
    memory.window = memory.levels.since_best
    if total is None or fall is None:
        return fall
    of_total = memory.total_levels.fall(memory.totals, view.step, view.span)
    tiny = abs(median(reward.last(15))) < 0.1 * abs(median(memory.totals.last(15)))
    if tiny and of_total is not None and of_total > fall:
        memory.where, memory.window = "rl_rlhf_reward", memory.total_levels.since_best
        return of_total
    return fall


@declared.signal("reward_gain", unit="spreads", of="reward")
def reward_gain(view: View, memory: Memory) -> float | None:
    """Return how far 30 rewards in a row have ever been above the first 30, in spreads of the first."""
    reward = memory.past["reward"]
    if "reward" not in memory.fresh or reward.count < REWARD_GAIN_FROM or memory.resumed:
        return None
    if memory.first_rewards is None:
        memory.first_rewards = spread(reward.first)
    start, width = memory.first_rewards
    gain = (median(reward.last(30)) - start) / max(width, 1e-9)
    return max(gain, memory.past["reward_gain"].high)
