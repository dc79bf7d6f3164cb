"""Builds the next snapshot: the rules by which a value becomes a sample, a bucket or a count, and the results of the
judge become series: conditions, their limits, when each last began, good checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from rlexporter.conditions.incidents import Mark
from rlexporter.conditions.watch import Verdict, Watch
from rlexporter.model.checkpoint import Folders, GoodCheckpoints
from rlexporter.model.histogram import NONE, Histogram, Nonfinite
from rlexporter.model.incident import WORDS, Incident, worst
from rlexporter.model.metric import Kind, Metric, Series
from rlexporter.model.snapshot import AnomalyCounts, Snapshot

_GAUGE, _HISTOGRAM = Kind.GAUGE, Kind.HISTOGRAM  # looking up a member costs more than the rest of `number`
_NONFINITE = "rl_nonfinite_values_total"
_UNDEFINED = "rl_undefined_values_total"
_NEAREST = "rl_nearest_limit_fraction"


class SnapshotBuilder:
    """A mutable copy of a snapshot. ``named``: the catalog by Prometheus name."""

    __slots__ = (
        "_named",
        "anomalies",
        "buckets",
        "earlier_folder",
        "family",
        "framework",
        "good_folder",
        "incidents",
        "labels",
        "reasons",
        "samples",
        "steps",
        "totals",
    )

    def __init__(self, base: Snapshot, named: Mapping[str, Metric]) -> None:
        self._named = named
        self.labels = base.labels
        self.samples = dict(base.samples)
        self.steps = dict(base.steps)
        self.buckets = dict(base.buckets)
        self.totals = dict(base.totals)
        self.incidents = base.incidents
        self.reasons = dict(base.reasons)
        self.framework = base.framework
        self.family = base.family
        self.good_folder = base.good_folder
        self.earlier_folder = base.earlier_folder
        self.anomalies = AnomalyCounts()

    def freeze(self) -> Snapshot:
        numbers = (self.samples, self.steps, self.buckets, self.totals)
        texts = (self.framework, self.family, self.good_folder, self.earlier_folder)
        return Snapshot(self.labels, *numbers, self.incidents, self.reasons, *texts)

    def get(self, name: str, *labels: str) -> float | None:
        return self.samples.get(Series(self._named[name], labels))

    def set(self, name: str, value: float, *labels: str) -> None:
        self.samples[Series(self._named[name], labels)] = value

    def add(self, name: str, amount: float, *labels: str) -> None:
        series = Series(self._named[name], labels)
        self.samples[series] = self.samples.get(series, 0.0) + amount

    def gauges(
        self, values: Mapping[Series, float] | Iterable[tuple[Series, float]], fed: Mapping[Series, float], step: int
    ) -> None:
        """Set the gauges of ``values``, which are those of ``fed``, as of ``step``."""
        self.samples.update(values)
        self.steps.update(dict.fromkeys(fed, step))

    def clear(self, name: str, *labels: str) -> None:
        """Drop every sample of the metric ``name`` whose labels begin with ``labels``."""
        metric = self._named[name]
        for series in [s for s in self.samples if s.metric is metric and s.labels[: len(labels)] == labels]:
            del self.samples[series]
            self.steps.pop(series, None)

    def number(self, targets: Sequence[Series], value: float, step: int, *, counted: bool = False) -> None:
        """Write one number to each of ``targets``. Gauges take NaN and infinities as they are.

        ``counted``: True if a tensor tap has counted NaN and infinities already.
        """
        finite = isfinite(value)
        for series in targets:
            kind = series.metric.kind
            if kind is _GAUGE:
                self.samples[series] = value
                self.steps[series] = step
            elif not finite:
                continue
            elif kind is _HISTOGRAM and value < 0 and not series.metric.signed:
                self.undefined_values(series.metric, 1)
            elif kind is _HISTOGRAM:
                have = self.buckets.get(series) or Histogram.empty(series.metric.bounds)
                self.buckets[series] = have.including(value)
            else:
                self._count_up_to(series, value)
        if not finite and not counted:
            self._count_nonfinite(targets[0].metric, Nonfinite.of(value))

    def undefined(self, targets: tuple[Series, ...]) -> None:
        """Take a key that was logged as None: its gauges are absent until the next number."""
        for series in targets:
            if series.metric.kind is _GAUGE:
                self.samples.pop(series, None)
                self.steps.pop(series, None)
        self.undefined_values(targets[0].metric, 1)

    def merge(self, series: Series, counted: Histogram, step: int, *, twin: bool = False) -> None:
        """Write a batch of values: a histogram adds them, a gauge shows their mean, a counter advances to the largest.

        ``twin``: True if the gauge of the same values is written too, and counts NaN and infinities.
        """
        if series.metric.kind is _HISTOGRAM:
            have = self.buckets.get(series)
            self.buckets[series] = have + counted if have else counted
        elif series.metric.kind is _GAUGE:
            mean = counted.mean
            if mean == mean or counted.nonfinite:  # nothing is left where every value was masked
                self.samples[series] = mean
                self.steps[series] = step
        elif isfinite(counted.maximum):
            self._count_up_to(series, counted.maximum)
        if not twin and (counted.nonfinite is not NONE or counted.outside):
            self._count_nonfinite(series.metric, counted.nonfinite)
            self.undefined_values(series.metric, counted.outside)

    def undefined_values(self, metric: Metric, count: int) -> None:
        """Add ``count`` values of ``metric`` that were not given, or that the metric cannot have."""
        if count:
            name = metric.of or metric.series
            self.add(_UNDEFINED, count, name)
            self.anomalies.undefined[name] += count

    def _count_up_to(self, series: Series, total: float) -> None:
        """Advance a counter by the growth of the trainer's running total; a smaller total started again from 0."""
        last = self.totals.get(series, 0.0)
        grown = total - last if total >= last else total
        self.samples[series] = self.samples.get(series, 0.0) + max(grown, 0.0)
        self.totals[series] = total

    def _count_nonfinite(self, metric: Metric, bad: Nonfinite) -> None:
        if not bad:
            return
        name = metric.of or metric.series
        for kind, number in bad.by_kind():
            if number:
                self.add(_NONFINITE, number, name, kind)
                self.anomalies.nonfinite[name] += number


def begin_conditions(builder: SnapshotBuilder, watch: Watch, folders: Folders) -> None:
    """Write the conditions of a run that begins now; none of them can be judged yet."""
    builder.set("rl_stall_after_seconds", watch.stall_after(""))
    for name in ("rl_condition_judged", "rl_threshold", "rl_signal", _NEAREST):
        builder.clear(name)
    for name, labels in [(series.metric.series, series.labels) for series in builder.samples]:
        if name in ("rl_condition", "rl_condition_symptom"):  # they ended with the run before
            builder.set(name, 0.0, *labels)
    write_incidents(builder, ())
    for condition, _ in watch.limits:
        builder.set("rl_condition_judged", 0.0, condition.name)
    write_checkpoint(builder, watch.checkpoints.good, folders)


def write_verdict(builder: SnapshotBuilder, verdict: Verdict, step: int, now: float, folders: Folders) -> None:
    """Write the changes of conditions in ``step``; ``now``: seconds since the epoch; ``folders``: of checkpoints."""
    for transition in verdict.transitions:
        labels = transition.key
        has_number = not transition.condition.finding
        if not transition.judged:
            builder.clear("rl_threshold", *labels)
        elif has_number:
            builder.set("rl_threshold", transition.threshold, *labels)
        if transition.changed or not transition.judged:
            builder.set("rl_condition_judged", float(transition.judged), transition.condition.name)
        if transition.began or (transition.changed and builder.get("rl_condition", *labels) is not None):
            builder.set("rl_condition", float(transition.active), *labels)
        if transition.began:
            builder.add("rl_condition_events_total", 1, *labels)
            builder.set("rl_condition_last_event_timestamp_seconds", now, *labels)
            builder.set("rl_condition_last_event_step", step, *labels)
            builder.set("rl_condition_last_event_value", transition.value if has_number else 1.0, *labels)
            if has_number:
                builder.set("rl_condition_last_event_threshold", transition.threshold, *labels)
    builder.gauges(verdict.values, verdict.values, step)
    if verdict.was_nearest:
        builder.clear(_NEAREST, verdict.was_nearest)
    if verdict.nearest is not None:
        signal, share = verdict.nearest
        builder.set(_NEAREST, share, signal)
    mark_symptoms(builder, verdict.marks)
    if verdict.incidents is not builder.incidents:
        write_incidents(builder, verdict.incidents)
    write_checkpoint(builder, verdict.checkpoints, folders)


def write_checkpoint(builder: SnapshotBuilder, good: GoodCheckpoints, folders: Folders) -> None:
    """Write the newest good checkpoint that exists; the series is absent while there is none."""
    newest, builder.good_folder = folders.newest(good) if good.steps else (None, "")
    builder.earlier_folder = folders.earlier
    if newest is not None:
        builder.set("rl_last_good_checkpoint_step", newest)
    elif builder.get("rl_last_good_checkpoint_step") is not None:
        builder.clear("rl_last_good_checkpoint_step")


def mark_symptoms(builder: SnapshotBuilder, marks: Iterable[Mark]) -> None:
    """Write which conditions are symptoms of others; what never was one stays absent."""
    for key, cause in marks:
        if cause is not None or builder.get("rl_condition_symptom", *key) is not None:
            builder.set("rl_condition_symptom", float(cause is not None), *key)


def write_incidents(builder: SnapshotBuilder, incidents: Sequence[Incident]) -> None:
    """Write all that has gone wrong in the run, what it says of the run, and which of it is the cause."""
    builder.incidents = incidents
    builder.set("rl_run_verdict", WORDS.index(worst(incidents)))
    for name in ("rl_incident", "rl_run_cause_info"):
        builder.clear(name)
    for incident in incidents:
        of = (incident.condition, incident.severity.value, incident.subject)
        builder.set("rl_incident", incident.standing.number, *of, incident.cause, incident.unit)
    for incident in incidents[:1]:
        if incident.speaks:
            of = (incident.condition, incident.severity.value, incident.subject)
            builder.set("rl_run_cause_info", 1.0, *of, incident.signal)
