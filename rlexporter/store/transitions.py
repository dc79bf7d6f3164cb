"""Writes the results of the judge into a snapshot: conditions, their limits, and when each last began."""

from __future__ import annotations

from collections.abc import Iterable

from rlexporter.conditions.incidents import Mark
from rlexporter.conditions.watch import Verdict, Watch
from rlexporter.store.builder import SnapshotBuilder


def begin(builder: SnapshotBuilder, watch: Watch) -> None:
    """Write the conditions of a run that begins now; none of them can be judged yet."""
    builder.set("rl_stall_after_seconds", watch.stall_after(""))
    for name in ("rl_condition", "rl_condition_judged", "rl_threshold"):
        builder.clear(name)
    old = [series.labels for series in builder.samples if series.metric.series == "rl_condition_symptom"]
    mark(builder, [Mark((name, severity), None) for name, severity in old])
    for condition, limit in watch.limits:
        builder.set("rl_condition_judged", 0.0, condition.name)
        builder.keep("rl_condition_events_total", condition.name, limit.severity.value)


def write(builder: SnapshotBuilder, verdict: Verdict, step: int, now: float) -> None:
    """Write the changes of conditions in ``step``. ``now``: seconds since the epoch."""
    for condition, limit, threshold, active, began, value, _, changed in verdict.transitions:
        labels = (condition.name, limit.severity.value)
        builder.set("rl_threshold", threshold, *labels)
        if changed:
            builder.set("rl_condition_judged", 1.0, condition.name)
            builder.set("rl_condition", float(active), *labels)
        if began:
            builder.add("rl_condition_events_total", 1, *labels)
            builder.set("rl_condition_last_event_timestamp_seconds", now, *labels)
            builder.set("rl_condition_last_event_step", step, *labels)
            builder.set("rl_condition_last_event_value", value, *labels)
    mark(builder, verdict.marks)


def mark(builder: SnapshotBuilder, marks: Iterable[Mark]) -> None:
    """Write which conditions are symptoms of others; what never was one stays absent."""
    for key, cause in marks:
        if cause is not None or builder.get("rl_condition_symptom", *key) is not None:
            builder.set("rl_condition_symptom", float(cause is not None), *key)
