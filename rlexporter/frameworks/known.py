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
"""The label ``framework`` of runs of TRL. Its keys are declared with the metrics themselves."""

_files = dict.fromkeys(frameworks.FILES.get(name, name) for name in frameworks.FRAMEWORKS)
FRAMEWORKS: dict[str, Framework] = {
    table.name: table for file in _files for table in import_module(f"rlexporter.frameworks.{file}").TABLES
}
"""The frameworks by name. Of two with the same keys, the one with the more specific marks comes first."""


def written_by(keys: Collection[str]) -> Framework | None:
    """Return the framework that ``keys`` of a log identify, or None."""
    return next((framework for framework in FRAMEWORKS.values() if not framework.marks.isdisjoint(keys)), None)


def family_of(framework: Framework, keys: Collection[str]) -> str:
    """Return the algorithm of TRL whose conditions apply to a log with ``keys``; empty if TRL's own keys decide."""
    if framework.of_trl:
        return ""
    return GRPO if framework.critic.isdisjoint(keys) else PPO
