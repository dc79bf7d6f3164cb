"""Alerts and rules that only Prometheus can evaluate, as the catalogue declares them."""

from __future__ import annotations

from dataclasses import dataclass

from rlexporter.model.condition import Family, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A Prometheus recording rule that several alerts share."""

    name: str
    expr: str


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
    of_run: bool = True
