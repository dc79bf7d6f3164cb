"""The declaration of a framework other than TRL: the keys of its log lines, and the series that they feed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameworkKey:
    """A key of a framework's log line. ``name`` may be a template, as that of `Key`."""

    name: str
    series: str
    """The Prometheus name of the metric that it feeds; empty for a key that is no metric, such as the step."""
    families: tuple[str, ...] = ()
    """The algorithms of TRL whose conditions apply to the runs that mean this by the key; empty for all runs."""
    scale: float = 1.0
    """The factor from the unit of the key to that of the metric: 0.001 for milliseconds."""
    nothing: float | None = None
    """The value that is logged where nothing is measured, such as a KL without a reference; it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework, and what is known of its log lines."""

    name: str
    """The label ``framework`` of its runs."""
    title: str
    keys: tuple[FrameworkKey, ...]
    marks: frozenset[str]
    """Keys that identify the framework; one is enough."""
    of_trl: bool = False
    """True if its trainers descend from TRL's: they log TRL's keys too, which tell the algorithm."""
    critic: frozenset[str] = frozenset()
    """The keys of which any tells that a run trains a value function."""
    source: str
    """The repository, release and files that names, units and estimators were read from."""
