"""Signals that no single series holds: each a function of the step and of the past of other signals.

They return the number, or None where the step says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from rlexporter.conditions import rewards
from rlexporter.conditions.memory import MAX_KEYS, ROUNDING, Memory
from rlexporter.conditions.view import View

_LITTLE_KL = {"k1": 0.3, "k3": 0.6, "sequence": 2.0}
"""A policy that was nearer to its reference than this was as good as there."""


Derive = Callable[[View, Memory], "float | None"]


def nonfinite(wanted: Callable[[Mapping[str, int], Memory], list[str]]) -> Derive:
    """How many values were NaN or infinite. ``wanted``: of which metrics, those that had any given; the first of those
    with most is what it is about.
    """

    def count(view: View, memory: Memory) -> float | None:
        bad = view.anomalies.nonfinite
        names = wanted(bad, memory) if bad else []
        if names:
            memory.where = max(names, key=bad.__getitem__)
        return float(sum(bad[name] for name in names))

    return count


def _nonfinite_of(names: tuple[str, ...]) -> Derive:
    return nonfinite(lambda bad, memory: [name for name in names if name in bad])


_OF_A_FUNCTION = ("rl_reward_function_mean", "rl_reward_function_std")


def nonfinite_reward(names: tuple[str, ...]) -> Derive:
    """As `nonfinite`. Older TRL logs NaN where a function gave None for all: the tensor tells the two apart."""
    plain = tuple(name for name in names if name not in _OF_A_FUNCTION)
    of_all, of_plain = _nonfinite_of(names), _nonfinite_of(plain)

    def count(view: View, memory: Memory) -> float | None:
        seen = "rl_reward_function_dist"
        if not memory.tapped:
            memory.tapped = seen in view.anomalies.undefined or any(each.metric.series == seen for each in view.seen)
        return (of_plain if memory.tapped else of_all)(view, memory)

    return count


def hacking(view: View, memory: Memory) -> float | None:
    """KL in multiples of what it was at a third of the way, while the reward is at its best; else 0."""
    kl, reward = memory.past["kl"], memory.past["reward"]
    if "kl" not in memory.fresh or kl.count < 60 or reward.count < 60:
        return None
    if not memory.past["reward_gained"].newest:
        return 0.0
    return median(kl.last(10)) / max(median(kl.last(30, 30)), _LITTLE_KL[memory.variant["kl"]])


def kl(view: View, memory: Memory) -> float | None:
    """KL a token from KL a sequence, where the mean length is known."""
    memory.where = "rl_kl_per_sequence"
    total, length = view.numbers.get(memory.where), view.numbers.get("rl_completion_length_mean")
    return total / length if total is not None and length else None


def kl_distance(view: View, memory: Memory) -> float | None:
    """How far the policy is from the reference, without the sign of a noisy estimate."""
    found = memory.new("kl")
    return None if found is None else abs(found)


def kl_first(view: View, memory: Memory) -> float | None:
    """The very first KL of a run: before any update the policy is the reference."""
    found = memory.new("kl")
    return found if found is not None and memory.past["kl"].count == 1 and not memory.resumed else None


def eos_missing(view: View, memory: Memory) -> float | None:
    """The share of responses without an end token, of modern PPO."""
    ends, episode = view.numbers.get("rl_eos_tokens"), view.numbers.get("rl_episode")
    if ends is None:
        return None
    lengths = view.counted.get("rl_completion_length_dist")
    responses = lengths.count if lengths else (episode or 0.0) - memory.episode
    memory.episode = episode or memory.episode
    return max(0.0, 1.0 - ends / responses) if responses > 0 else None


def same_length(view: View, memory: Memory) -> float | None:
    """Spread of the completion lengths over their mean."""
    width, length = memory.new("length_spread"), memory.new("length")
    return None if width is None or not length else width / length


def gradient_dead(view: View, memory: Memory) -> float | None:
    """1 where the gradient is exactly 0 although rewards differ."""
    gradient = memory.new("grad_norm")
    if gradient is None:
        return None
    width = memory.past["reward_std"]
    return float(gradient == 0.0 and (not width.count or abs(width.newest) > ROUNDING))


def advantage_offset(view: View, memory: Memory) -> float | None:
    """How far the mean advantage is from 0."""
    found = memory.new("advantage")
    return None if found is None else abs(found)


def learning_rate(view: View, memory: Memory) -> float | None:
    """The learning rate over its highest so far, or over 1e-4 where it never was so high."""
    rate = memory.new("learning_rate")
    return None if rate is None else rate / max(memory.past["learning_rate"].high, 1e-4)


def keys_gone(view: View, memory: Memory) -> float | None:
    """How many log keys have not come for three times their longest pause."""
    if not view.keys:
        return None
    memory.lines += 1
    now = memory.lines
    if view.keys != memory.shape:
        _change_shape(view.keys, memory, now)
    return float(sum(count >= 10 and now - last > 3 * max(pause, 5) for last, count, pause in memory.absent))


def _change_shape(shape: tuple[str, ...], memory: Memory, now: int) -> None:
    """Account for lines that all had the same keys, at once; nearly every line has those of the line before."""
    keys, more = memory.keys, now - 1 - memory.since
    for key in memory.shape if more > 0 else ():
        if key in keys:
            _, count, pause = keys[key]
            keys[key] = (now - 1, count + more, pause)
    for key in shape:
        last, count, pause = keys.get(key, (now, 0, 0))
        if count or len(keys) < MAX_KEYS:
            keys[key] = (now, count + 1, max(pause, now - last))
    there = frozenset(shape)
    memory.absent = [found for key, found in keys.items() if key not in there]
    memory.shape, memory.since = shape, now


def step_time(view: View, memory: Memory) -> float | None:
    """Seconds that the step took."""
    return view.gap if view.advanced else None


def table(nonfinite_metrics: Mapping[str, tuple[str, ...]], may_be_nonfinite: tuple[str, ...]) -> dict[str, Derive]:
    """Every derived signal by name. ``nonfinite_metrics``: what each of the signals ``nonfinite_*`` counts."""
    named = frozenset(may_be_nonfinite).union(*nonfinite_metrics.values())
    return {
        **{signal: _nonfinite_of(names) for signal, names in nonfinite_metrics.items()},
        "nonfinite_reward": nonfinite_reward(nonfinite_metrics["nonfinite_reward"]),
        "nonfinite_other": nonfinite(lambda bad, memory: [name for name in bad if name not in named]),
        "reward_lost": rewards.reward_lost,
        "reward_function_lost": rewards.reward_function_lost,
        "reward_functions_dead": rewards.reward_functions_dead,
        "reward_functions_silent": rewards.reward_functions_silent,
        "reward_gained": rewards.reward_gained,
        "flat_share": rewards.flat_share,
        "reward_flat": rewards.reward_flat,
        "solved": rewards.solved,
        "reward_gain": rewards.reward_gain,
        "reward_jump": rewards.reward_jump,
        "hacking": hacking,
        "kl": kl,
        "kl_distance": kl_distance,
        "kl_first": kl_first,
        "advantage_offset": advantage_offset,
        "eos_missing": eos_missing,
        "same_length": same_length,
        "gradient_dead": gradient_dead,
        "learning_rate_share": learning_rate,
        "keys_gone": keys_gone,
        "step_time": step_time,
    }
