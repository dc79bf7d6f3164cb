"""Writes the results of the judge into a snapshot: conditions, their limits, and when each last began."""

from __future__ import annotations

from collections.abc import Iterable

from rlexporter.conditions.judge import Transition
from rlexporter.conditions.watch import Watch
from rlexporter.store.builder import SnapshotBuilder


def begin(builder: SnapshotBuilder, watch: Watch) -> None:
    """Write the conditions of a run that begins now; none of them can be judged yet."""
    builder.set("rl_stall_after_seconds", watch.stall_after(""))
    for name in ("rl_condition", "rl_condition_judged", "rl_threshold"):
        builder.clear(name)
    for condition, limit in watch.limits:
        builder.set("rl_condition_judged", 0.0, condition.name)
        builder.keep("rl_condition_events_total", condition.name, limit.severity.value)


def write(builder: SnapshotBuilder, transitions: Iterable[Transition], step: int, now: float) -> None:
    """Write the changes of conditions in ``step``. ``now``: seconds since the epoch."""
    for condition, limit, threshold, active, began, value, _, changed in transitions:
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
