"""What learning explains: by how much more than its limit a number may be, since the reward was found or has risen."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import median

from rlexporter.conditions.past import NOISE, WARM, Past
from rlexporter.conditions.view import Memory

_CLEAR = 4.0
"""The spreads from step to step by which a reward is clearly above its start."""
_NEAR = 0.75
"""The share of the most that was ever gained from which a reward is near its best."""
_GROWTH = 4.0
"""The factor by which KL grows at most in 20 steps of a healthy run that gains no more than before."""
_PAST = 20
"""The observations from which a growth of KL is one: before it may grow from 0 by any factor."""
_NOTHING = 1 / 3
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
    return reward.median(10, 40) - reward.low < _NOTHING * (reward.median(10) - reward.low)


def untaught(memory: Memory) -> bool:
    """Return True if most completions of the last 3 steps were in groups without a spread of reward."""
    return _flat(memory.past["flat_share"].last(3)) > 0.5


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
