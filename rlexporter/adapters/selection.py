"""Choice of the taps that fit a trainer."""

from __future__ import annotations

from typing import Any

from rlexporter.adapters.grpo import GroupTaps, UnslothTaps
from rlexporter.adapters.optimizer import OptimizerTaps
from rlexporter.adapters.ppo import PPOTaps
from rlexporter.adapters.swift import SwiftGroupTaps
from rlexporter.adapters.taps import NoTaps, NotTapped, Taps
from rlexporter.adapters.trainer_facts import framework_of, names_of
from rlexporter.frameworks.trl_based import SWIFT, UNSLOTH
from rlexporter.model.sink import Sink

_GROUP_TRAINERS = {"GRPOTrainer", "RLOOTrainer"}
_PPO_TRAINERS = {"PPOTrainer", "PPOv2Trainer"}
_SAMPLING_TRAINERS = {
    *("OnlineDPOTrainer", "XPOTrainer", "NashMDTrainer", "A2POTrainer", "SDPOTrainer", "SDFTTrainer"),
    "AsyncGRPOTrainer",
}
"""Trainers that sample completions, without taps on them."""


def taps_for(trainer: Any, sink: Sink) -> list[Taps]:
    """Install the taps that fit ``trainer``, and return them."""
    names = set(names_of(type(trainer)))
    taps = [kind(trainer, sink) for kind in _kinds(trainer, names)]
    for tap in taps:
        tap.install()
    return taps


def _kinds(trainer: Any, names: set[str]) -> tuple[type[Taps], ...]:
    """Return the kinds of taps: modern PPO, and RLOO up to trl 0.21, have loops of their own, any other Trainer not."""
    if names & _PPO_TRAINERS:
        return (PPOTaps,)
    if "RLOOTrainer" in names and not hasattr(trainer, "_generate_and_score_completions"):
        return (NoTaps,)
    if not names & _GROUP_TRAINERS:
        return (OptimizerTaps, NotTapped) if names & _SAMPLING_TRAINERS else (OptimizerTaps,)
    if (framework := framework_of(trainer)) == SWIFT.name:
        return (OptimizerTaps, SwiftGroupTaps)
    if framework == UNSLOTH.name and "GRPOTrainer" in names:
        return (OptimizerTaps, UnslothTaps)
    return (OptimizerTaps, GroupTaps)
