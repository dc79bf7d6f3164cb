"""Derived signals: each is a function of the step and of the past of other signals, as no single series holds it.

It returns a number, or None if the step has none.
"""

from __future__ import annotations

from itertools import islice, pairwise, takewhile
from statistics import median

from rlexporter.catalog.conditions import KL_AT_START, KL_COEF_LOST, KL_FLOOR, SETTLED
from rlexporter.conditions.evidence import UNIT
from rlexporter.conditions.learning import found
from rlexporter.conditions.past import START, Past, deviation
from rlexporter.conditions.view import ROUNDING, Declared, Memory, View

declared = Declared()

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
    now = median(kl.last(5))
    if now <= KL_FLOOR.get(memory.variant["kl"], 0.0):
        return 0.0
    late, middle, early = reward.median(10), reward.median(10, 20), reward.median(10, 40)
    jump = late - middle - max(0.0, middle - early)
    if jump <= 0.0 or jump <= 1.5 * deviation(reward.last(50, 20)) or found(memory):
        return 0.0
    memory.about(dict.fromkeys(_risen(memory), 0))
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


@declared.signal("kl_first_seen", unit="nats", of="kl", after=("kl_first",))
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


@declared.signal("same_length", unit="fraction", of="length", after=("length_spread",))
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
    if median(entropy.last(5)) >= 0.35 * entropy.start(START) or memory.new("reward_gained"):
        return 0.0
    lengths, shares = memory.past["length"], memory.past["flat_share"]
    # The first length alone: a policy that has collapsed within its first lines has no later one to compare with.
    short = lengths.count > 0 and median(lengths.last(5)) < 0.3 * lengths.first[0]
    dead = memory.past["grad_norm"].last(10).count(0.0) > 5
    flat = shares.count > 0 and median(shares.last(5)) >= 0.8
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
    now = median(kl.last(min(still, 5)))
    return float(still) if now > (0.9 if before[-1] > before[0] else 2.0) * then else 0.0


def _still_for(past: Past) -> int:
    """Return for how many observations the newest value has been the same as the one before; 0 if it never changed."""
    if past.low == past.high or past.count < 2:
        return 0
    values = past.values
    return sum(1 for _ in takewhile(past.newest.__eq__, islice(reversed(values), 1, None)))
