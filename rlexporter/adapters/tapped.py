"""Which taps fit a trainer."""

from __future__ import annotations

from typing import Any

from rlexporter.adapters.grpo import GroupTaps
from rlexporter.adapters.optimizer import OptimizerTaps
from rlexporter.adapters.rewards import RewardTaps
from rlexporter.adapters.taps import Taps
from rlexporter.feed import Feed

_GROUP_TRAINERS = {"GRPOTrainer", "RLOOTrainer"}


def taps_for(trainer: Any, feed: Feed) -> list[Taps]:
    """Taps on this trainer, in place: those of the optimizer on any, those of GRPO and RLOO on these."""
    kinds = {each.__name__ for each in type(trainer).__mro__}
    group = [RewardTaps, GroupTaps] if kinds & _GROUP_TRAINERS else []
    taps = [kind(trainer, feed) for kind in (OptimizerTaps, *group)]
    for each in taps:
        each.install()
    return taps
