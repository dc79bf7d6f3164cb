"""All frameworks other than TRL by name, and which of them has written a log.

A key feeds a series only if unit, level and estimator are those of the series; else it has a series of its own (see
`rlexporter.catalog`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module

from rlexporter import frameworks
from rlexporter.catalog.algorithms import GRPO, PPO
from rlexporter.model.metric import Framework

TRL = "trl"
"""The label ``framework`` of runs of TRL. Its keys are declared with the metrics themselves."""
SWIFT, UNSLOTH = "ms-swift", "unsloth"
"""The labels of runs whose trainers descend from those of TRL."""


class _Tables(Mapping[str, Framework]):
    """The tables by the names of their frameworks. A module is loaded when one of its tables is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Framework] = {}

    def __getitem__(self, name: str) -> Framework:
        if name not in self._loaded:
            module = import_module(frameworks.FRAMEWORKS[name][0])
            self._loaded |= {table.name: table for table in module.TABLES}
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in frameworks.FRAMEWORKS

    def __iter__(self) -> Iterator[str]:
        return iter(frameworks.FRAMEWORKS)

    def __len__(self) -> int:
        return len(frameworks.FRAMEWORKS)


FRAMEWORKS: Mapping[str, Framework] = _Tables()


def written_by(keys: Collection[str]) -> Framework | None:
    """Return the framework that ``keys`` of a log identify, or None."""
    return next((framework for framework in FRAMEWORKS.values() if not framework.marks.isdisjoint(keys)), None)


def family_of(framework: Framework, keys: Collection[str]) -> str:
    """Return the algorithm of TRL whose conditions apply to a log with ``keys``; empty if TRL's own keys decide."""
    if framework.of_trl:
        return ""
    return GRPO if framework.critic.isdisjoint(keys) else PPO
