"""Writes the results of the judge into a snapshot: conditions, their limits, when each last began, good checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from rlexporter.conditions.incidents import Mark
from rlexporter.conditions.watch import Verdict, Watch
from rlexporter.store.builder import SnapshotBuilder

_TICK = 1e-4
"""Seconds between the times of two limits that begin in the same step, so that a server can tell which came first."""


def begin(builder: SnapshotBuilder, watch: Watch) -> None:
    """Write the conditions of a run that begins now; none of them can be judged yet."""
    builder.set("rl_stall_after_seconds", watch.stall_after(""))
    for name in ("rl_condition_judged", "rl_threshold"):
        builder.clear(name)
    for name, labels in [(series.metric.series, series.labels) for series in builder.samples]:
        if name in ("rl_condition", "rl_condition_symptom"):  # they ended with the run before
            builder.set(name, 0.0, *labels)
    for condition, _ in watch.limits:
        builder.set("rl_condition_judged", 0.0, condition.name)
    checkpoint(builder, watch.checkpoints.good)


def write(builder: SnapshotBuilder, verdict: Verdict, step: int, now: float) -> None:
    """Write the changes of conditions in ``step``, whose transitions are in the order of causes.

    ``now``: seconds since the epoch.
    """
    ticks = 0
    for condition, limit, threshold, active, began, value, _, changed in verdict.transitions:
        labels = (condition.name, limit.severity.value)
        builder.set("rl_threshold", threshold, *labels)
        if changed:
            builder.set("rl_condition_judged", 1.0, condition.name)
        if began or (changed and builder.get("rl_condition", *labels) is not None):
            builder.set("rl_condition", float(active), *labels)
        if began:
            builder.add("rl_condition_events_total", 1, *labels)
            builder.set("rl_condition_last_event_timestamp_seconds", now + ticks * _TICK, *labels)
            ticks += 1
            builder.set("rl_condition_last_event_step", step, *labels)
            builder.set("rl_condition_last_event_value", value, *labels)
            builder.set("rl_condition_last_event_threshold", threshold, *labels)
    mark(builder, verdict.marks)
    checkpoint(builder, verdict.good_checkpoint)


def checkpoint(builder: SnapshotBuilder, good: int | None) -> None:
    """Write the step of the newest good checkpoint; the series is absent while there is none."""
    if good is not None:
        builder.set("rl_last_good_checkpoint_step", good)
    elif builder.get("rl_last_good_checkpoint_step") is not None:
        builder.clear("rl_last_good_checkpoint_step")


def mark(builder: SnapshotBuilder, marks: Iterable[Mark]) -> None:
    """Write which conditions are symptoms of others; what never was one stays absent."""
    for key, cause in marks:
        if cause is not None or builder.get("rl_condition_symptom", *key) is not None:
            builder.set("rl_condition_symptom", float(cause is not None), *key)
