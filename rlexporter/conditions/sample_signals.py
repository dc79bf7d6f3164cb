"""Derived signals of the samples of large runs: mismatch, age and loss of samples, what fails, waiting."""

from __future__ import annotations

from math import log, sqrt
from statistics import median

from rlexporter.conditions.past import EARLY, deviation
from rlexporter.conditions.view import MAX_FUNCTIONS, Declared, Memory, View

declared = Declared()

_TOOLS = "rl_tool_failure_frequency"
_FAILURES = {
    "rl_rollout_error_fraction": "rollouts with an error",
    "rl_completion_empty_fraction": "empty completions",
    _TOOLS: "tool calls",
}
_FEW_CALLS = 0.05
"""Calls per completion below which their failures say nothing."""
_WAITING = ("wait", "idle", "exposed")
"""What names of phases contain in which the trainer has nothing to do."""
_LARGEST = 50.0
"""The largest z-score in a group of 2,500 completions: beyond it an advantage is none, whatever the group."""


# Mismatch


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


@declared.source
def effective_by_chi2(view: View, memory: Memory) -> float | None:
    """Return the effective share of samples by the chi-squared divergence of the weights: 1 / (1 + chi2)."""
    value = _read(view, memory, "rl_sampling_chi2_per_token")
    return 1.0 / (1.0 + value) if value is not None and value >= 0.0 else None


@declared.source
def effective_by_spread(view: View, memory: Memory) -> float | None:
    """Return the effective share of samples by mean and standard deviation of the weights: m^2 / (m^2 + s^2)."""
    mean, width = view.numbers.get("rl_sampling_weight_mean"), _read(view, memory, "rl_sampling_weight_std")
    return mean**2 / (mean**2 + width**2) if mean and width is not None else None


# Age and loss


@declared.source
def staleness(view: View, memory: Memory) -> float | None:
    """Return the mean age of samples as asynchronous GRPO of TRL logs it."""
    memory.where = "rl_sample_staleness"
    return view.functions.get(memory.where, {}).get("mean")


@declared.signal("staleness_share", unit="fraction", of="staleness")
def staleness_share(view: View, memory: Memory) -> float | None:
    """Return the mean age of samples over the most that the run allows; None where that is not known."""
    age = memory.new("staleness")
    bound = memory.settings.get("max_staleness")
    return age / bound if age is not None and bound else None


@declared.signal("samples_dropped", unit="fraction", reads=("rl_sample_dropped_fraction", "rl_evicted_samples"))
def samples_dropped(view: View, memory: Memory) -> float | None:
    """Return the share of the samples that was thrown away as too old: as logged, or by their numbers."""
    if (share := view.numbers.get("rl_sample_dropped_fraction")) is not None:
        return share
    dropped = [count for count in view.functions.get("rl_evicted_samples", {}).values() if count is not None]
    kept = view.numbers.get("rl_step_samples")
    return sum(dropped) / (sum(dropped) + kept) if dropped and kept else None


# Environments


@declared.signal("rollouts_failing", unit="fraction", reads=tuple(_FAILURES), window=20)
def rollouts_failing(view: View, memory: Memory) -> float | None:
    """Return the largest share of what fails now and did not at first: rollouts, completions, tool calls; else 0.

    It counts from twice the early one: 0.1 above it in the last 5 steps at the median, or 0.05 above it in the last 20.
    """
    failing: dict[str, int] = {}
    worst, seen = 0.0, False
    for series, name in _FAILURES.items():
        value = view.numbers.get(series)
        if value is None:
            continue
        seen = True
        if series == _TOOLS and view.numbers.get("rl_tool_call_frequency", 1.0) < _FEW_CALLS:
            continue  # 0 as there was no call: a policy that learns to call tools would seem to fail more and more
        past = memory.failures[name]
        past.add(value)
        early = past.early()
        if early is None or past.count < 20 or past.high <= max(2.0 * early, early + 0.05):
            continue
        for steps, more in ((5, 0.1), (20, 0.05)):
            if (now := median(past.last(steps))) > max(2.0 * early, early + more):
                failing[name] = view.step
                worst = max(worst, now)
    memory.about(failing)
    return worst if seen else None


@declared.signal("agents_lost", unit="agents", reads=("rl_agent_reward",), window=5)
def agents_lost(view: View, memory: Memory) -> float | None:
    """Count the agents or environments whose reward has fallen far below its level, and stays there.

    Level and noise are those of the 50 steps before the last 10; far is 6 standard deviations, and 30 % of the level.
    """
    lost: dict[str, int] = {}
    rewards = {
        labels.removesuffix("/mean"): value
        for labels, value in view.functions.get("rl_agent_reward", {}).items()
        if labels.endswith("/mean") and value is not None
    }
    for name, value in rewards.items():
        if name not in memory.agents and len(memory.agents) >= MAX_FUNCTIONS:
            continue
        past = memory.agents[name]
        past.add(value)
        before = past.last(50, 10)
        if len(before) < 2 * EARLY:
            continue
        level, now = median(before), median(past.last(5))
        if level - now > max(6.0 * deviation(before), 0.3 * abs(level)):
            lost[name] = view.step
    memory.about(lost)
    return float(len(lost)) if rewards else None


# The update


@declared.signal("advantage_excess", reads=("rl_advantage_dist", "rl_advantage_max", "rl_advantage_min"))
def advantage_excess(view: View, memory: Memory) -> float | None:
    """Return the most extreme advantage over what a z-score can be in a group: (G - 1) / sqrt(G) in one of G.

    None where advantages are not z-scores, by the first 10 steps: one was beyond that, or half of them were below half
    of it, as plain differences of rewards of 0 and 1 are. Without a known G the largest of a group of 2,500 counts.
    """
    ends = [abs(view.numbers[name]) for name in ("rl_advantage_max", "rl_advantage_min") if name in view.numbers]
    counted = view.counted.get("rl_advantage_dist")
    if counted is not None and counted.count:
        ends = [abs(counted.maximum), abs(counted.minimum)]
    if not ends:
        return None
    group = memory.settings.get("num_generations", 0.0)
    excess = max(ends) / ((group - 1.0) / sqrt(group) if group > 1.0 else _LARGEST)
    memory.extremes.add(excess)
    early = memory.extremes.first[:10]
    scores = len(early) == 10 and max(early) <= 1.01 and (group <= 1.0 or median(early) >= 0.5)
    return excess if scores else None


@declared.signal("updates_skipped", unit="skipped updates", reads=("rl_skipped_updates_total",), window=20)
def updates_skipped(view: View, memory: Memory) -> float | None:
    """Count the updates of the last 20 steps that were skipped, as gradients were infinite or a rule said so."""
    counted = view.counted.get("rl_skipped_updates_total")
    if counted is None:
        return None
    memory.skipped.append(counted.positive_sum)
    return sum(memory.skipped)


# Time


@declared.source
def waiting(view: View, memory: Memory) -> float | None:
    """Return the share of the step that the trainer waits, by the phases that the framework logs."""
    memory.where = "rl_phase_time_seconds"
    phases, whole = view.functions.get(memory.where, {}), view.numbers.get("rl_step_time_seconds")
    waits = [
        seconds for name, seconds in phases.items() if seconds is not None and any(word in name for word in _WAITING)
    ]
    return min(sum(waits) / whole, 1.0) if waits and whole else None


@declared.source
def rollout_tail(view: View, memory: Memory) -> float | None:
    """Return how many times the mean the slowest completion of the step takes; it is about the part that is slow."""
    memory.where = "rl_sample_time_seconds"
    times = view.functions.get(memory.where, {})
    longest = {
        part: seconds for name, seconds in times.items() if (part := name.removesuffix("/max")) != name and seconds
    }
    part = "total" if "total" in longest else max(longest, key=longest.__getitem__, default="")
    mean = times.get(f"{part}/mean")
    if not part or not mean:
        return None
    if part != "total":
        memory.about({part: 0})
    return longest[part] / mean
