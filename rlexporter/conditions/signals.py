"""The signals of a run that no single series holds, by what they look at.

Each is a function of the step and of the past of other signals: it returns a number, or None if the step has none. The
order here is the order of evaluation. Last comes what learning explains, which limits ask for too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise, takewhile
from math import inf, log, sqrt
from statistics import median

from rlexporter.catalog.causes import Place, place
from rlexporter.catalog.conditions import (
    COPIES_EXCESS,
    KL_AT_START,
    KL_COEF_LOST,
    KL_FLOOR,
    NONFINITE,
    REWARD_GAIN_FROM,
    SETTLED,
)
from rlexporter.catalog.metrics import MAY_BE_NONFINITE
from rlexporter.conditions.past import NOISE, START, UNIT, WARM, Past, Varied, deviation, spread
from rlexporter.conditions.view import ASIDE, MAX_FUNCTIONS, ROUNDING, Declared, Derive, Memory, View, value_range
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Transition

declared = Declared()

# NaN and infinities, and the order in which they arose within a step

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
            memory.about = dict.fromkeys(returned, view.step)
        return count

    return count


def _of_evaluations(names: tuple[str, ...]) -> Derive:
    """Count those of the last evaluation of each data set. A step without an evaluation shows nothing."""

    def count(view: View, memory: Memory) -> float | None:
        shown = [(series, counted.nonfinite) for series, counted in view.seen.items() if series.metric.series in names]
        for series, bad in shown:  # a data set that is evaluated says nothing of another one
            if series.labels in memory.evaluated or len(memory.evaluated) < MAX_FUNCTIONS:
                memory.evaluated[series.labels] = sum(number for _, number in bad.by_kind())
        (memory.where,) = names
        memory.about = {series.labels[-1]: view.step for series, bad in shown if bad}
        return float(sum(memory.evaluated.values())) if shown else None

    return count


declared.signal("nonfinite_reward", unit="values", rests=True)(_of_rewards(NONFINITE["nonfinite_reward"]))
declared.signal("nonfinite_value_loss", unit="values", rests=True)(_of(NONFINITE["nonfinite_value_loss"]))
_EVALUATED = NONFINITE["nonfinite_eval_reward"]
declared.signal("nonfinite_eval_reward", unit="values", reads=_EVALUATED)(_of_evaluations(_EVALUATED))


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
    memory.about = {first: view.step}
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


# The reward, and each reward function: lost, flat, solved, gained

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
    memory.about = lost
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
    memory.about = dead
    return float(len(dead)) if given else None


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
        name: (mean, std, None, None)
        for name, mean in means.items()
        if mean is not None and mean == mean and (std := stds.get(name)) is not None and std == std
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
    return float(median(reward.values[-5:]) >= best - 0.1 * abs(best - start))


@declared.signal(
    "flat_share", unit="fraction", of="reward_std", after=("reward", "zero_std_fraction"), reads=("reward",)
)
def flat_share(view: View, memory: Memory) -> float | None:
    """Return the share of completions whose group has no spread of reward; 1 if the whole step has none.

    Tensors are exact where TRL's frac_reward_zero_std is not: that compares a standard deviation with 1e-8, and the
    rounding of equal rewards alone can be more.
    """
    if "reward" not in memory.fresh:
        return None
    groups = view.counted.get("rl_reward_group_range_dist")
    if groups is not None and groups.count:
        return groups.counts[0] / groups.count
    reward, width = memory.past["reward"], memory.new("reward_std")
    share = memory.new("zero_std_fraction")
    if width is not None and abs(width) <= ROUNDING * max(1.0, abs(reward.newest)):
        return 1.0
    if share is not None or width is not None:
        return share or 0.0
    if memory.past["reward_std"].count or reward.count < 3:
        return None
    return float(len(set(reward.values[-3:])) == 1)


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
    last = memory.past["reward"].values[-2:]
    flat = share >= _FLAT
    memory.window = 1  # as the step since which they are flat is known
    if flat:
        memory.about = {"": view.step - memory.flat.length * view.span}
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
    tiny = abs(median(reward.values[-15:])) < 0.1 * abs(median(memory.totals.values[-15:]))
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
    gain = (median(reward.values[-30:]) - start) / max(width, 1e-9)
    return max(gain, memory.past["reward_gain"].high)


# The policy: KL, entropy, lengths, gradients, rates

_MOVING = 10
"""The number of changes in a row that make a coefficient an adaptive one."""
_RISEN = 0.3
_NEARLY_ALL = 0.9
"""The rise of the share of truncated completions, and the share, from which on it is told as one of the others."""
_LITTLE_KL = {"k1": 0.05, "k3": 0.05, "sequence": 1.0}
"""The KL, by variant, below which its growth means nothing."""


@declared.signal("hacking", of="kl", after=("reward", "flat_share"), window=20)
def hacking(view: View, memory: Memory) -> float | None:
    """Return the KL of the last 5 steps over that of 30 steps before the last 20, if the reward has jumped; else 0.

    A jump is a rise in 20 steps that exceeds that in the 20 before by more than 1.5 standard deviations of the reward.
    """
    kl, reward = memory.past["kl"], memory.past["reward"]
    if "kl" not in memory.fresh or min(kl.count, reward.count) <= SETTLED:
        return None
    now = median(kl.values[-5:])
    if now <= KL_FLOOR.get(memory.variant["kl"], 0.0):
        return 0.0
    late, middle, early = reward.median(10), reward.median(10, 20), reward.median(10, 40)
    jump = late - middle - max(0.0, middle - early)
    if jump <= 0.0 or jump <= 1.5 * deviation(reward.last(50, 20)) or found(memory):
        return 0.0
    memory.about = dict.fromkeys(_risen(memory), 0)
    return now / max(median(kl.last(30, 20)), 1e-9)


def _risen(memory: Memory) -> list[str]:
    """Return the reward function of several that has risen most in 20 steps, as its weight counts it."""
    rises = {
        name: (past.median(10) - past.median(10, 20)) * memory.weights.get(name, 1.0)
        for name, past in memory.functions.items()
        if past.count > SETTLED
    }
    name = max(rises, key=rises.__getitem__, default="")
    return [name] if len(memory.functions) > 1 and name and rises[name] > 0.0 else []


@declared.source
def kl(view: View, memory: Memory) -> float | None:
    """Return the KL per token, computed from that per sequence and the mean length."""
    memory.where = "rl_kl_per_sequence"
    total, length = view.numbers.get(memory.where), view.numbers.get("rl_completion_length_mean")
    return total / length if total is not None and length else None


@declared.signal("kl_distance", unit="nats", of="kl", after=("ref_changed",))
def kl_distance(view: View, memory: Memory) -> float | None:
    """Return the absolute KL, since a noisy estimate can be negative; None where the reference follows the policy."""
    value, reference = memory.new("kl"), memory.past["ref_changed"]
    return None if value is None or (reference.count and reference.newest > 0.0) else abs(value)


@declared.signal("kl_first", unit="nats", of="kl")
def kl_first(view: View, memory: Memory) -> float | None:
    """Return the very first KL of a run: before any update the policy is the reference. None in a later step."""
    first = view.step <= 1 and memory.past["kl"].count == 1 and not memory.resumed
    return memory.new("kl") if first else None


@declared.signal("kl_first_seen", unit="nats", of="kl", after=("kl_first",), reads=("rl_kl_per_token_dist",))
def kl_first_seen(view: View, memory: Memory) -> float | None:
    """Return the very first KL where it was seen at the tensor, which is exact; None for one that is large anyway."""
    first = memory.new("kl_first")
    if first is None or "rl_kl_per_token_dist" not in view.counted:
        return None
    return abs(first) if abs(first) <= KL_AT_START else None


@declared.signal("advantage_offset", of="advantage")
def advantage_offset(view: View, memory: Memory) -> float | None:
    """Return how far the mean advantage is from 0."""
    mean = memory.new("advantage")
    return None if mean is None else abs(mean)


@declared.signal("truncation_rise", unit="fraction", of="truncated")
def truncation_rise(view: View, memory: Memory) -> float | None:
    """Return by how much more of the completions are truncated than at the start of the run.

    Once nearly all are, it is the share of those that were not then: all of them is 1, however many there were.
    """
    truncated, past = memory.new("truncated"), memory.past["truncated"]
    if truncated is None or past.count <= START:
        return None
    rise = truncated - past.start(START)
    return rise / (1.0 - past.start(START)) if rise > _RISEN and truncated >= _NEARLY_ALL else rise


@declared.signal("eos_missing", unit="fraction", reads=("rl_eos_tokens",))
def eos_missing(view: View, memory: Memory) -> float | None:
    """Return the share of responses without an end token (modern PPO)."""
    ends, episode = view.numbers.get("rl_eos_tokens"), view.numbers.get("rl_episode")
    if ends is None:
        return None
    lengths = view.counted.get("rl_completion_length_dist")
    responses = lengths.count if lengths else (episode or 0.0) - memory.episode
    memory.episode = episode or memory.episode
    return max(0.0, 1.0 - ends / responses) if responses > 0 else None


@declared.signal("same_length", unit="fraction", of="length", after=("length_spread",), reads=("length_spread",))
def same_length(view: View, memory: Memory) -> float | None:
    """Return the spread of the completion lengths over their mean."""
    width, length = memory.new("length_spread"), memory.new("length")
    return None if width is None or not length else width / length


@declared.signal(
    "collapse_signs",
    unit="signs",
    of="entropy",
    after=("length", "grad_norm", "flat_share", "reward_gained"),
    window=10,
)
def collapse_signs(view: View, memory: Memory) -> float | None:
    """Count what has collapsed without a gain: entropy, and beside it lengths, gradients and spreads of groups."""
    entropy = memory.past["entropy"]
    if "entropy" not in memory.fresh or entropy.count <= START:
        return None
    if median(entropy.values[-5:]) >= 0.35 * entropy.start(START) or memory.new("reward_gained"):
        return 0.0
    lengths, shares = memory.past["length"], memory.past["flat_share"]
    # The first length alone: a policy that has collapsed within its first lines has no later one to compare with.
    short = lengths.count > 0 and median(lengths.values[-5:]) < 0.3 * lengths.first[0]
    dead = memory.past["grad_norm"].values[-10:].count(0.0) > 5
    flat = shares.count > 0 and median(shares.values[-5:]) >= 0.8
    return 1.0 + short + dead + flat


@declared.signal("gradient_dead", unit=UNIT, of="grad_norm", after=("reward_std", "zero_std_fraction"), window=20)
def gradient_dead(view: View, memory: Memory) -> float | None:
    """Return how improbable it is that the gradient is exactly 0 for so many steps in a row although rewards differ.

    The gradient may be of one step of several that the rewards are of, or of a part of the groups. By chance it is 0
    then with at most the probability that a group has no spread.
    """
    gradient, width = memory.new("grad_norm"), memory.new("reward_std")
    if gradient is None or width is None or abs(width) <= ROUNDING:
        return None
    flat = memory.new("zero_std_fraction")
    improbable = memory.dead.add(gradient == 0.0, 0.5 if flat is None else flat)
    memory.window = max(1, memory.dead.length)
    return improbable


@declared.signal("learning_rate_share", unit="fraction", of="learning_rate")
def learning_rate_share(view: View, memory: Memory) -> float | None:
    """Return the learning rate over its highest value so far; None if no logged value was above 0."""
    rate, highest = memory.new("learning_rate"), memory.past["learning_rate"].high
    return rate / highest if rate is not None and highest > 0.0 else None


@declared.signal("kl_coef_share", unit="fraction", of="kl_coef")
def kl_coef_share(view: View, memory: Memory) -> float | None:
    """Return the coefficient over its highest value so far; -1 if it has always been negative, None if always 0."""
    coefficient, highest = memory.new("kl_coef"), memory.past["kl_coef"].high
    if coefficient is None or (highest <= 0.0 and coefficient == 0.0):
        return None
    return coefficient / highest if highest > 0.0 else -1.0


@declared.signal("kl_coef_stuck", unit="steps", of="kl_coef", after=("kl", "kl_coef_share"))
def kl_coef_stuck(view: View, memory: Memory) -> float | None:
    """Return for how many steps a coefficient that used to adapt has not changed while KL asks for it, else 0.

    KL asks for it where the coefficient was rising, so that KL was above its target, and KL has not come down; and
    where KL has doubled.
    """
    if memory.new("kl_coef") is None:
        return None
    if (memory.new("kl_coef_share") or 0.0) < KL_COEF_LOST:  # it is lost, and stays so
        return 0.0
    coefficient, kl = memory.past["kl_coef"], memory.past["kl"]
    still = _still_for(coefficient)
    before = coefficient.last(_MOVING + 1, still)
    if not still or len(before) <= _MOVING or any(a == b for a, b in pairwise(before)):
        return 0.0
    if "kl" not in memory.fresh or kl.count < coefficient.count:
        return 0.0
    then = max(median(kl.last(_MOVING, still)), _LITTLE_KL[memory.variant["kl"]])
    now = median(kl.values[-min(still, 5) :])
    return float(still) if now > (0.9 if before[-1] > before[0] else 2.0) * then else 0.0


def _still_for(past: Past) -> int:
    """Return for how many observations the newest value has been the same as the one before; 0 if it never changed."""
    if past.low == past.high or past.count < 2:
        return 0
    values = past.values
    return sum(1 for _ in takewhile(past.newest.__eq__, islice(reversed(values), 1, None)))


# The pace: how long steps take, by how much that grew, and which part of a step grew

_SLOW = 2.0
"""How many times the usual a step takes whose slowest part is looked for."""
_PHASE = "rl_phase_time_seconds"
_FUNCTION = "rl_reward_function_time_seconds"


@declared.signal("step_time", unit="seconds")
def step_time(view: View, memory: Memory) -> float | None:
    """Return the seconds that the step took; it is about the part that makes it slow, if it is."""
    seconds, past = view.gap, memory.past["step_time"]
    if not view.advanced or seconds is None:
        return None
    pace, parts = memory.pace, _parts(view)
    pace.grown = {}
    while pace.slow and pace.slow[0] < view.step - 10:
        pace.slow.popleft()
    if pace.slow or seconds > _SLOW * past.newest:
        before = past.last(30, len(pace.slow))
        usual = median(before) if before else seconds
        if seconds > _SLOW * usual:
            pace.slow.append(view.step)
            grown = {  # by how much each part is slower than before
                name: part - median(of_part.last(30, len(pace.slow) - 1))
                for name, part in parts.items()
                if (of_part := pace.parts.get(name)) is not None and of_part.count > len(pace.slow)
            }
            most = max(grown, key=grown.__getitem__, default="")
            if most and grown[most] > (seconds - usual) / 2:
                pace.grown = {most: pace.slow[0]}
    for name, part in parts.items():
        if name in pace.parts or len(pace.parts) < MAX_FUNCTIONS:
            pace.parts[name].add(part)
    memory.about = pace.grown
    return seconds


@declared.signal("longest_pause", unit="seconds", of="step_time", reads=())
def longest_pause(view: View, memory: Memory) -> float | None:
    """Return the seconds that the step took, or all of those without a step if the run counted as hung meanwhile."""
    if view.stalled is None:
        memory.about = memory.pace.grown
        return memory.new("step_time")
    seconds, phase = view.stalled
    memory.about = {phase: view.step}
    return max(seconds, memory.new("step_time") or 0.0)


def _parts(view: View) -> dict[str, float]:
    """Return the seconds of each part of the step: its phases, and the reward functions apart from theirs."""
    phases = view.phases or view.functions.get(_PHASE, {})
    if not (phases or view.seen):
        return {}
    parts = {name: seconds for name, seconds in phases.items() if seconds is not None and name not in ASIDE}
    called = (pair for pair in view.seen.items() if pair[0].metric.series == _FUNCTION)
    calls = {series.labels[0]: counted.positive_sum for series, counted in called}
    if "reward" in parts:
        parts["reward"] = max(0.0, parts["reward"] - sum(calls.values()))
    return {**parts, **calls}


# What only tensors show: it is averaged away in log lines, or never logged

_ADVANTAGES, _LOGPROBS, _ENTROPIES = "rl_advantage_dist", "rl_logprob_dist", "rl_entropy_per_token_dist"
_MANY = 200
"""The number of rewards from which on their extremes say something."""
_ZEROS_FROM = 20
"""The number of first steps that say how often a reward is exactly 0."""
_SELDOM = 0.01
"""The share of exact zeros up to which they are rare."""
_STEPS_OF_PROMPTS = 20
"""The number of steps whose prompts say how short they are by themselves."""
_ROLLOUTS = 10
"""The number of rollouts before sampler and policy are compared."""
_UNSURE = 3
"""The number of last rollouts that do not say how much an offset varies, as they may be those of a fault."""
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


@declared.signal("reward_outlier", unit="ranges", reads=("rl_reward_dist", "rl_reward_function_dist"))
def reward_outlier(view: View, memory: Memory) -> float | None:
    """Return how far the most extreme reward of the step is beyond all rewards before, in multiples of their range."""
    furthest: float | None = None
    for name, counted in rewards(view).items():
        if value_range(counted) is None or (name not in memory.envelopes and len(memory.envelopes) >= MAX_FUNCTIONS):
            continue
        envelope = memory.envelopes[name]
        distance = envelope.beyond(counted.minimum, counted.maximum, counted.count)
        if distance is not None and (furthest is None or distance > furthest):
            furthest = distance
    return furthest


@declared.signal("reward_functions_blind", unit="reward functions", reads=("rl_reward_function_flat_fraction",))
def reward_functions_blind(view: View, memory: Memory) -> float | None:
    """Count reward functions that no longer tell the completions of a prompt apart, while groups differ."""
    shares, given = _shares(view, "rl_reward_function_flat_fraction"), rewards(view)
    blind: dict[str, int] = {}
    for name, share in shares.items():
        if name not in given or (value_range(given[name]) or 0.0) <= ROUNDING:
            continue  # all the same: dead, or solved
        if name not in memory.groups and len(memory.groups) >= MAX_FUNCTIONS:
            continue
        groups = memory.groups[name]
        if groups.add(share, view.step):
            blind[name] = groups.since
    memory.about = blind
    return float(len(blind)) if shares else None


@declared.signal(
    "reward_zeros",
    unit="fraction",
    reads=("rl_reward_function_zero_fraction", "rl_reward_zero_fraction"),
    window=3,
)
def reward_zeros(view: View, memory: Memory) -> float | None:
    """Return the largest share of exact zeros in three steps, of a reward function or of the reward.

    Only where zeros were rare in the first 20 steps, and where 0 is not the highest reward.
    """
    shares = _shares(view, "rl_reward_function_zero_fraction") | _shares(view, "rl_reward_zero_fraction")
    given = {"": view.counted.get("rl_reward_dist"), **rewards(view)}
    lost: dict[str, int] = {}
    most: float | None = None
    for name, share in shares.items():
        if name not in memory.zeros and len(memory.zeros) >= MAX_FUNCTIONS:
            continue
        past = memory.zeros[name]
        past.add(share)
        seldom = past.count > _ZEROS_FROM and sum(past.first[:_ZEROS_FROM]) <= _SELDOM * _ZEROS_FROM
        counted = given.get(name)
        if not seldom or counted is None or counted.maximum <= 0.0:
            continue
        now = sum(past.values[-3:]) / 3
        most = max(most or 0.0, now)
        if now > _SELDOM:
            lost[name] = view.step
    if most is not None:
        memory.about = lost
    return most


def _shares(view: View, series: str) -> dict[str, float]:
    """Return the mean of ``series`` in the step by reward function; by an empty name where it has no label."""
    return {
        "".join(one.labels): counted.finite_mean
        for one, counted in view.seen.items()
        if one.metric.series == series and counted.count
    }


@declared.signal("reward_below_range", unit="ranges", reads=("rl_reward_dist",))
def reward_below_range(view: View, memory: Memory) -> float | None:
    """Return how far the mean reward of the step is below the lowest single reward before, in ranges of all before."""
    counted = view.counted.get("rl_reward_dist")
    if counted is None or not counted.count:
        return None
    memory.where = "rl_reward_dist"
    width = memory.highest - memory.lowest
    known = memory.rewards >= _MANY and width > ROUNDING
    distance = (memory.lowest - counted.finite_mean) / width if known else None
    if distance is None or distance <= 0.0:
        memory.lowest = min(memory.lowest, counted.minimum)
        memory.highest = max(memory.highest, counted.maximum)
        memory.rewards += counted.count
    return distance


@declared.source
def reward_weights_lost(view: View, memory: Memory) -> float | None:
    """Count reward functions whose weight has become 0. Where weights change the reward begins anew."""
    weights = _shares(view, "rl_reward_function_weight")
    if not weights:
        return None
    before, memory.weights = memory.weights, weights
    if before and before != weights:
        memory.anew |= {"reward", "reward_std"}
        memory.lowest, memory.highest, memory.rewards = float("inf"), float("-inf"), 0
        memory.zeros.pop("", None)
    was = {name for name, weight in before.items() if weight} | memory.lost_weights.keys()
    memory.lost_weights = {
        name: memory.lost_weights.get(name, view.step)
        for name, weight in weights.items()
        if weight == 0.0 and name in was
    }
    memory.where = "rl_reward_function_weight"
    memory.about = memory.lost_weights
    return float(len(memory.lost_weights))


@declared.signal("advantage_dead", reads=(_ADVANTAGES,))
def advantage_dead(view: View, memory: Memory) -> float | None:
    """Return 1 if all advantages are the same although rewards differ within a group, else 0."""
    advantages, ranges = view.counted.get(_ADVANTAGES), view.counted.get("rl_reward_group_range_dist")
    if advantages is None or ranges is None or not advantages.count or not ranges.count:
        return None
    memory.where = _ADVANTAGES
    spread = advantages.maximum - advantages.minimum
    return float(ranges.maximum > ROUNDING and spread <= ROUNDING * min(1.0, ranges.maximum))


@declared.signal("prompts_stuck", unit="fraction", of="prompts_repeated")
def prompts_stuck(view: View, memory: Memory) -> float | None:
    """Return the share of repeated prompts; None where the run began like that, with a small data set."""
    share, past = memory.new("prompts_repeated"), memory.past["prompts_repeated"]
    return share if share is not None and past.count > START and past.start(START) < 0.5 else None


@declared.signal("prompt_shortness", unit="fraction", of="prompt_length")
def prompt_shortness(view: View, memory: Memory) -> float | None:
    """Return the longest prompt of the step over the lowest mean length of a step before: 1 or more in any mixture."""
    counted, mean = view.counted.get("rl_prompt_length_dist"), memory.new("prompt_length")
    if counted is None or mean is None:
        return None
    known = memory.past["prompt_length"].count > _STEPS_OF_PROMPTS and memory.shortest > 0.0
    share = counted.maximum / memory.shortest if known else None
    if share is None or share >= 1.0:
        memory.shortest = min(memory.shortest, mean)
    return share


@declared.signal("copies_excess", unit="fraction", of="copied", after=("copied_expected",))
def copies_excess(view: View, memory: Memory) -> float | None:
    """Return how much larger the share of copies is than the policy would give."""
    copied, expected = memory.new("copied"), memory.new("copied_expected")
    return copied - expected if copied is not None and expected is not None and _faithful(memory) else None


@declared.signal("sampler_gap", unit="nats per token", reads=(_LOGPROBS,), window=20)
def sampler_gap(view: View, memory: Memory) -> float | None:
    """Return how far sampler and policy are apart for sure.

    That is the mean of 20 rollouts, less three standard errors; or, sooner, what a two-sided cumulative sum of the
    rollouts since it began to rise says, once that is beyond six standard deviations (E. S. Page, Continuous Inspection
    Schemes, 1954).
    """
    offset = _offset(view, memory)
    if offset is None:
        return None
    own, memory.where = memory.offsets, _LOGPROBS
    before = [*own][:-_UNSURE]
    own.append(offset)
    sudden = max(memory.above.add(offset, before), memory.below.add(-offset, before))
    if _ENTROPIES not in view.counted:  # a mean of means: lengths that change move it, and no sampler
        sudden = 0.0
    count = len(own)
    if count < _ROLLOUTS:
        return sudden or None
    return max(sudden, abs(sum(own) / count) - _SURE * deviation(own) / sqrt(count - 1))


def _offset(view: View, memory: Memory) -> float | None:
    """Return the mean log-probability of tokens that were just sampled plus the mean entropy: 0 but for noise.

    That holds where tokens are drawn from the policy that is scored; with a greedier sampler it is above 0. None where
    the settings say that tokens are drawn from something else, or that some are left out.
    """
    logprobs, rollout = view.counted.get(_LOGPROBS), view.counted.get(_ADVANTAGES)
    if logprobs is None or not logprobs.count or rollout is None or not rollout.count or not _faithful(memory):
        return None
    entropies = view.counted.get(_ENTROPIES)
    entropy = entropies.finite_mean if entropies and entropies.count else view.numbers.get("rl_entropy_per_token")
    return None if entropy is None else logprobs.finite_mean + entropy


def _faithful(memory: Memory) -> bool:
    settings = memory.settings
    plain = all(name not in settings or settings[name] in values for name, values in _TRUNCATING.items())
    return plain and not settings.get("mask_truncated_completions")


# The weights: whether they change, by how much, and what the optimizer does not have

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
    rate = max(memory.past["learning_rate"].values[-2:], default=0.0)
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
    rate = max(memory.past["learning_rate"].values[-2:], default=0.0)  # the update was made in the step before
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


# Sampler and trainer: how far they are apart, by what frameworks log of it


def _read(view: View, memory: Memory, series: str) -> float | None:
    """Return the number of ``series``, and note that the signal is read there."""
    value = view.numbers.get(series)
    if value is not None:
        memory.where = series
    return value


@declared.source
def log_factor(view: View, memory: Memory) -> float | None:
    """Return the logarithm of the mean factor between both probabilities of a token: nats, as their difference."""
    factor = _read(view, memory, "rl_sampling_probability_factor_mean")
    return log(factor) if factor is not None and factor > 0.0 else None


@declared.source
def sampler_k1(view: View, memory: Memory) -> float | None:
    """Return the absolute k1 estimate of the KL divergence of sampler and trainer, which noise can make negative."""
    value = _read(view, memory, "rl_sampling_kl_per_token")
    return None if value is None else abs(value)


# What learning explains: by how much more than its limit a number may be, since the reward was found or has risen

_CLEAR = 4.0
"""The spreads from step to step by which a reward is clearly above its start."""
_NEAR = 0.75
"""The share of the most that was ever gained from which a reward is near its best."""
_GROWTH = 4.0
"""The factor by which KL grows at most in 20 steps of a healthy run that gains no more than before."""
_PAST = 20
"""The observations from which a growth of KL is one: before it may grow from 0 by any factor."""
_NEXT_TO_NONE = 1 / 3
"""The share of the reward now, above the lowest there was, below which there was next to none."""


def distance(memory: Memory) -> float:
    """Return infinity if what has been gained pays for the KL, else 1."""
    kl = memory.past["kl"]
    return _paid(memory, kl.newest, kl.last(30, 20))


def growth(memory: Memory) -> float:
    """Return how many times as much has been gained as 20 steps ago; infinity if the reward has been found since."""
    reward = memory.past["reward"]
    if found(memory):
        return inf
    gain, before = _gain(reward), reward.last(30, 20)
    if gain <= 0.0 or not before:
        return 1.0
    return max(1.0, gain / max(median(before) - reward.start(WARM), _noise(reward)))


def recent_gradients(memory: Memory) -> float:
    """Return infinity if rewards differed in less than half of the last 50 steps without the newest 5; else 1."""
    return inf if _flat(memory.past["flat_share"].last(50, 5)) >= 1.0 else 1.0


ALLOWANCES: dict[str, Callable[[Memory], float]] = {
    "distance": distance,
    "growth": growth,
    "recent gradients": recent_gradients,
}
"""By name (`Limit.learning`), what gives the factor on a limit."""


def found(memory: Memory) -> bool:
    """Return True if there was next to no reward 40 steps ago, and so nothing to learn from, and there is now.

    What a policy was like before that says nothing of how it moves when it learns.
    """
    reward = memory.past["reward"]
    if reward.count <= 40 or _flat(memory.past["flat_share"].last(10, 40)) <= 0.5:
        return False
    return reward.median(10, 40) - reward.low < _NEXT_TO_NONE * (reward.median(10) - reward.low)


def untaught(memory: Memory) -> bool:
    """Return True if most completions of the last 3 steps were in groups without a spread of reward."""
    return _flat(memory.past["flat_share"].values[-3:]) > 0.5


def _paid(memory: Memory, now: float, before: list[float]) -> float:
    """Return infinity if the reward is clearly above its start and near its best, and pays for a distance; else 1.

    It does not pay for one that grows much faster than what is gained. ``before``: the distances 20 steps ago.
    """
    if _gain(memory.past["reward"]) <= 0.0:
        return 1.0
    grows = len(before) >= _PAST and now > _GROWTH * median(before) * growth(memory)
    return 1.0 if grows else inf


def _flat(shares: list[float]) -> float:
    """Return the usual one of the ``shares`` of completions in groups without a spread; 0 without any."""
    return median(shares) if shares else 0.0


def _gain(reward: Past) -> float:
    """Return how far the reward is above its start, if that is clear and near the most that it ever was; else 0."""
    if reward.count <= WARM:
        return 0.0
    start = reward.start(WARM)
    gain = reward.median(10) - start
    most = start if reward.best is None else reward.best
    return gain if gain > _CLEAR * _noise(reward) and gain >= _NEAR * (most - start) else 0.0


def _noise(reward: Past) -> float:
    """Return the spread of the reward from step to step."""
    return max(reward.roughness() / NOISE, 1e-9)
