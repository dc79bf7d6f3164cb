"""Derived signals that need tensors: what they show is averaged away in log lines, or never logged."""

from __future__ import annotations

from math import sqrt

from rlexporter.conditions.past import START, deviation
from rlexporter.conditions.reward_signals import rewards
from rlexporter.conditions.view import MAX_FUNCTIONS, ROUNDING, Declared, Memory, View, value_range

declared = Declared()

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
    memory.about(blind)
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
        now = sum(past.last(3)) / 3
        most = max(most or 0.0, now)
        if now > _SELDOM:
            lost[name] = view.step
    if most is not None:
        memory.about(lost)
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
    memory.about(memory.lost_weights)
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
