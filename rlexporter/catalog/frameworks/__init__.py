"""Frameworks other than TRL, a file each: the keys that they log, and the series of the catalogue that these feed.

A key feeds a series only if unit, level and estimator are those of the series; else it has a series of its own (see
`rlexporter.catalog.framework_metrics`).
"""

from __future__ import annotations

from collections.abc import Collection

from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.catalog.frameworks.nemo_rl import NEMO_RL
from rlexporter.catalog.frameworks.openrlhf import OPENRLHF
from rlexporter.catalog.frameworks.prime_rl import PRIME_RL
from rlexporter.catalog.frameworks.slime import MILES, SLIME
from rlexporter.catalog.frameworks.swift import SWIFT
from rlexporter.catalog.frameworks.unsloth import UNSLOTH
from rlexporter.catalog.frameworks.verl import VERL, VERL_V1
from rlexporter.model.framework import Framework

TRL = "trl"
"""The label ``framework`` of the runs of TRL, whose keys the metrics themselves name."""

FRAMEWORKS: dict[str, Framework] = {
    each.name: each for each in (VERL_V1, VERL, OPENRLHF, NEMO_RL, PRIME_RL, SWIFT, UNSLOTH, MILES, SLIME)
}
"""The frameworks by name; of two with the same keys the one that is more easily told stands first."""

STEP_KEYS = ("global_step", "train/global_step", "training/global_step", "trainer/global_step", "eval/global_step")
"""Keys under which a line names its step: of transformers, verl, Lightning and OpenRLHF, and of many loops."""


def written_by(keys: Collection[str]) -> Framework | None:
    """Return the framework whose log has ``keys``; None if none is told by them."""
    return next((each for each in FRAMEWORKS.values() if not each.marks.isdisjoint(keys)), None)


def family_of(framework: Framework, keys: Collection[str]) -> str:
    """Return the algorithm of TRL whose conditions apply to a log with ``keys``; empty if TRL's own keys tell it."""
    if framework.of_trl:
        return ""
    return GRPO if framework.critic.isdisjoint(keys) else PPO
