"""Writes the results of the judge into a snapshot: conditions, their limits, when each last began, good checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlexporter.conditions.incidents import Mark
from rlexporter.conditions.watch import Verdict, Watch
from rlexporter.model.incident import WORDS, Incident, worst
from rlexporter.store.builder import SnapshotBuilder


def begin(builder: SnapshotBuilder, watch: Watch) -> None:
    """Write the conditions of a run that begins now; none of them can be judged yet."""
    builder.set("rl_stall_after_seconds", watch.stall_after(""))
    for name in ("rl_condition_judged", "rl_threshold", "rl_signal"):
        builder.clear(name)
    for name, labels in [(series.metric.series, series.labels) for series in builder.samples]:
        if name in ("rl_condition", "rl_condition_symptom"):  # they ended with the run before
            builder.set(name, 0.0, *labels)
    incidents(builder, ())
    for condition, _ in watch.limits:
        builder.set("rl_condition_judged", 0.0, condition.name)
    checkpoint(builder, watch.checkpoints.good)


def write(builder: SnapshotBuilder, verdict: Verdict, step: int, now: float) -> None:
    """Write the changes of conditions in ``step``; ``now``: seconds since the epoch."""
    for each in verdict.transitions:
        labels = (each.condition.name, each.limit.severity.value)
        in_force = each.threshold == each.threshold  # NaN: none
        if in_force:
            builder.set("rl_threshold", each.threshold, *labels)
        else:
            builder.clear("rl_threshold", *labels)
        if each.changed or not in_force:
            builder.set("rl_condition_judged", float(in_force), each.condition.name)
        if each.began or (each.changed and builder.get("rl_condition", *labels) is not None):
            builder.set("rl_condition", float(each.active), *labels)
        if each.began:
            builder.add("rl_condition_events_total", 1, *labels)
            builder.set("rl_condition_last_event_timestamp_seconds", now, *labels)
            builder.set("rl_condition_last_event_step", step, *labels)
            builder.set("rl_condition_last_event_value", each.value, *labels)
            builder.set("rl_condition_last_event_threshold", each.threshold, *labels)
    builder.gauges(verdict.values, step)
    mark(builder, verdict.marks)
    if verdict.incidents is not builder.incidents:
        incidents(builder, verdict.incidents)
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


def incidents(builder: SnapshotBuilder, found: Sequence[Incident]) -> None:
    """Write all that has gone wrong in the run, what it says of the run, and which of it is the cause."""
    builder.incidents = found
    builder.set("rl_run_verdict", WORDS.index(worst(found)))
    for name in ("rl_incident", "rl_run_cause_info"):
        builder.clear(name)
    for each in found:
        labels = (each.condition, each.severity.value, each.subject, each.cause, each.unit)
        builder.set("rl_incident", each.standing.number, *labels)
    for each in found[:1]:
        if each.speaks:
            builder.set("rl_run_cause_info", 1.0, each.condition, each.severity.value, each.subject)
