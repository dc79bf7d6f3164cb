"""Choice of the taps that fit a trainer."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlexporter.adapters.optimizer import OptimizerTaps
from rlexporter.adapters.taps import NoTaps, NotTapped, Taps
from rlexporter.adapters.trainer_facts import framework_of, names_of
from rlexporter.frameworks.known import SWIFT, UNSLOTH
from rlexporter.model.sink import Sink

TAPS = {
    "GroupTaps": "rlexporter.adapters.grpo",
    "UnslothTaps": "rlexporter.adapters.grpo",
    "SwiftGroupTaps": "rlexporter.adapters.swift",
    "PPOTaps": "rlexporter.adapters.ppo",
    "LegacyTaps": "rlexporter.adapters.ppo_legacy",
}
"""The taps on one kind of trainer, by the name of their class: its module. They are loaded for such a trainer."""
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
        return (_own("PPOTaps"),)
    if "RLOOTrainer" in names and not hasattr(trainer, "_generate_and_score_completions"):
        return (NoTaps,)
    if not names & _GROUP_TRAINERS:
        return (OptimizerTaps, NotTapped) if names & _SAMPLING_TRAINERS else (OptimizerTaps,)
    if (framework := framework_of(trainer)) == SWIFT:
        return (OptimizerTaps, _own("SwiftGroupTaps"))
    if framework == UNSLOTH and "GRPOTrainer" in names:
        return (OptimizerTaps, _own("UnslothTaps"))
    return (OptimizerTaps, _own("GroupTaps"))


def _own(name: str) -> type[Taps]:
    """Return the taps of this name; those that see nothing of a rollout if they are not in the list."""
    taps: type[Taps] = getattr(import_module(TAPS[name]), name) if name in TAPS else NotTapped
    return taps
