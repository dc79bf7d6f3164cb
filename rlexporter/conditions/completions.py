"""Completions: how long they are, and how they end."""

from __future__ import annotations

from rlexporter.conditions.declare import condition, mean, read, signal
from rlexporter.conditions.detectors import LASTING, MOSTLY, SOME, critical, level, ratio, warning
from rlexporter.conditions.past import START
from rlexporter.conditions.view import Context, View
from rlexporter.model.condition import Family, Read, Source

_RISEN = 0.3
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
    return rise / (1.0 - past.start(START)) if rise > _RISEN and truncated >= _NEARLY_ALL else rise


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


CONDITIONS = (
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
        ratio(warning(0.3, LASTING), below=True),
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
    ),
    condition("length_high", "RLLength", Family.LENGTH, "length").when(
        ratio(warning(3.0, LASTING)),
        "Completions have become much longer.",
        related=("rl_completion_length_mean", "rl_completion_truncated_fraction", "rl_reward_mean"),
    ),
    condition("same_length", "RLLength", Family.LENGTH, "same_length").when(
        level(warning(0.02, LASTING), below=True),
        "All completions have the same length.",
        related=("rl_completion_length_dist", "rl_completion_length_std", "rl_entropy_per_token"),
    ),
)
