"""Alerts and rules that only Prometheus can evaluate, as the catalogue declares them."""

from __future__ import annotations

from dataclasses import dataclass

from rlexporter.model.condition import Family, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A recording rule that several others use."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAlert:
    """An alert that no condition inside the process can raise."""

    alert: str
    family: Family
    severity: Severity
    expr: str
    summary: str
    description: str
    """A template of Prometheus, after the name of the run."""
    meaning: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    source: str = ""
    wait: str = ""
    """How long it must hold before it fires."""
    of_run: bool = True
