"""The one rule on what learning explains: entropy and length may fall, and KL grow, while the reward rises."""

from __future__ import annotations

from statistics import median

from rlexporter.conditions.detectors import NOISE, START, WARM, Past
from rlexporter.conditions.view import Context
from rlexporter.model.condition import Family

_CLEAR = 4.0
"""The spreads from step to step by which a reward is clearly above its start."""
_NEAR = 0.75
"""The share of the most that was ever gained from which a reward is near its best."""
_KL, _OTHER = 4.0, 2.0
"""The factors by which KL, and any other number, moves at most in 20 steps of a healthy run that gains as before."""
_MOST = 2.0
"""The growth of a gain that counts at most: next to none may grow by any factor."""
_PAST = 20
"""The observations from which the pace of KL is known: before, it may grow from 0 by any factor."""
_NEXT_TO_NONE = 1 / 3
"""The share of the reward now, above the lowest there was, below which there was next to none."""


LEARNED = (Family.KL_HIGH, Family.ENTROPY_LOW, Family.LENGTH, Family.GRAD)
"""The families of what moves as a policy learns: the rule is for each limit of them that is relative."""


def explains(run: Context, past: Past, family: Family) -> bool:
    """Return True if learning explains that a number has left its own ``past``, or is far from where it began.

    It does while the reward is clearly above its start and near its best, unless the number moves much faster than the
    gain: by more than `_KL` or `_OTHER` in 20 steps, times the factor of the gain. It does too where there was nothing
    to learn from before: what a policy was like then says nothing of how it moves when it learns, and a penalty alone
    has small gradients.
    """
    if found_late(run) or (family is Family.GRAD and _flat(run.past["flat_share"].last(50, 5)) >= 1.0):
        return True
    if _gain(run.past["reward"]) <= 0.0:
        return False
    before = past.last(30, 20) or past.first[:START]
    then, now = abs(median(before)), abs(past.newest)
    if family is Family.KL_HIGH and len(before) < _PAST:
        return True
    pace = (_KL if family is Family.KL_HIGH else _OTHER) * _growth(run.past["reward"])
    return max(now, then) <= pace * min(now, then)


def found_late(run: Context) -> bool:
    """Return True if there was next to no reward 40 steps ago, and so nothing to learn from, and there is now."""
    reward = run.past["reward"]
    if reward.count <= 40 or _flat(run.past["flat_share"].last(10, 40)) <= 0.5:
        return False
    return reward.median(10, 40) - reward.low < _NEXT_TO_NONE * (reward.median(10) - reward.low)


def untaught(run: Context) -> bool:
    """Return True if most completions of the last 3 steps were in groups without a spread of reward."""
    return _flat(run.past["flat_share"].values[-3:]) > 0.5


def _flat(shares: list[float]) -> float:
    """Return the usual one of the ``shares`` of completions in groups without a spread; 0 without any."""
    return median(shares) if shares else 0.0


def _growth(reward: Past) -> float:
    """Return how many times as much has been gained as 20 steps ago; 1 at least, and `_MOST` at most."""
    before = reward.last(30, 20)
    if not before:
        return 1.0
    return min(max(1.0, _gain(reward) / max(median(before) - reward.start(WARM), _noise(reward))), _MOST)


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
