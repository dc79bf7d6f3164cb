"""All frameworks other than TRL by name, and which of them has written a log.

A key feeds a series only if unit, level and estimator are those of the series; else it has a series of its own (see
`rlexporter.catalog`).
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from rlexporter import frameworks
from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.model.metric import Framework

TRL = "trl"
"""The label ``framework`` of the runs of TRL, whose keys the metrics themselves name."""

_files = dict.fromkeys(frameworks.FILES.get(name, name) for name in frameworks.FRAMEWORKS)
FRAMEWORKS: dict[str, Framework] = {
    each.name: each for file in _files for each in import_module(f"rlexporter.frameworks.{file}").TABLES
}
"""The frameworks by name; of two with the same keys the one that is more easily told stands first."""


def written_by(keys: Collection[str]) -> Framework | None:
    """Return the framework whose log has ``keys``; None if none is told by them."""
    return next((each for each in FRAMEWORKS.values() if not each.marks.isdisjoint(keys)), None)


def family_of(framework: Framework, keys: Collection[str]) -> str:
    """Return the algorithm of TRL whose conditions apply to a log with ``keys``; empty if TRL's own keys tell it."""
    if framework.of_trl:
        return ""
    return GRPO if framework.critic.isdisjoint(keys) else PPO
