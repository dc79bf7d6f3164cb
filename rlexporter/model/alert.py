"""Alerts and rules that only Prometheus can evaluate, as the catalogue declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlexporter.model.condition import Family, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A Prometheus recording rule. Several may record one series, under different ``labels``."""

    name: str
    expr: str
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAlert:
    """An alert that only Prometheus can raise, because the process cannot see its cause."""

    alert: str
    family: Family
    severity: Severity
    expr: str
    summary: str
    description: str
    """A Prometheus template; the rule puts the name of the run in front of it."""
    meaning: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    source: str = ""
    wait: str = ""
    """The time that ``expr`` must hold before the alert fires."""
    keep: str = ""
    """The time for which the alert goes on firing when ``expr`` does not hold any more."""
    of_run: bool = True
    tells_checkpoint: bool = False
    """Whether the description ends with the last step, and with that of the last good checkpoint."""
