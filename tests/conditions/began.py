"""Which conditions of a run have begun, and in which step, as they are served."""

from __future__ import annotations

from rlexporter import Exporter
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.model.condition import Family


def began(exporter: Exporter, family: Family | None = None) -> dict[tuple[str, str], int]:
    """The step in which each condition (of this family) last began, by name and severity."""
    return {
        (series.labels[0], series.labels[1]): int(value)
        for series, value in exporter.snapshot.samples.items()
        if series.metric.series == "rl_condition_last_event_step"
        and family in (None, CONDITION_NAMED[series.labels[0]].family)
    }


def is_over(exporter: Exporter, condition: str, severity: str) -> bool:
    """Whether it began once and has ended."""
    value = exporter.snapshot.value
    labels = {"condition": condition, "severity": severity}
    return value("rl_condition", **labels) == 0 and value("rl_condition_events_total", **labels) == 1
