"""A log line -> the draft of the next snapshot: which keys are known, what they feed, which step they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from rlexporter import values
from rlexporter.buckets import Buckets
from rlexporter.draft import Draft
from rlexporter.feed import StepUpdate
from rlexporter.model import Kind, Metric, Series
from rlexporter.resolve import Resolver, clip, dataset, evaluation_prefix
from rlexporter.tensors import host
from rlexporter.values import Unreadable

MAX_DATASETS = 20
"""Evaluation data sets of one run that are told apart; the lines of further ones are dropped and counted."""


class _Known(NamedTuple):
    """The keys of log lines with one evaluation prefix that were seen before, and what they feed."""

    targets: dict[str, tuple[Series, ...]]
    gauges: dict[str, Series]
    """Those that feed one gauge and nothing else."""


class Lines:
    """Writes the log lines of one run. ``max_keys``: of those that the catalogue does not fix; ``clock``: seconds."""

    def __init__(self, catalog: Sequence[Metric], max_keys: int, clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._named = {metric.series: metric for metric in catalog}
        self._max_keys = max_keys
        self._clock = clock
        self._resolver = Resolver(catalog)
        self._known: dict[str, _Known] = {}
        self.tapped: set[Metric] = set()
        self._variable_keys = 0
        self._unmapped_keys = 0

    def begin(self, algorithm: str) -> Resolver:
        """From now on keys mean what they mean in this algorithm."""
        self._resolver = Resolver(self._catalog, algorithm)
        self._known.clear()
        return self._resolver

    def write(
        self, draft: Draft, logs: Mapping[str, object], step: int | None, update: StepUpdate | None
    ) -> tuple[int, bool]:
        """One line, and the step update that belongs to it; either may be absent. Its step; whether it is of an
        evaluation.
        """
        prefix = evaluation_prefix(tuple(logs))
        step = self._progress(draft, step, update, evaluation=bool(prefix))
        if update is not None:
            self.absorb(draft, update)
        known = self._with(prefix)
        if known is None:
            draft.add("rlexporter_dropped_keys_total", len(logs))
            return step, bool(prefix)
        gauges, samples, steps = known.gauges, draft.samples, draft.steps
        for key, raw in logs.items():
            gauge = gauges.get(key)
            if gauge is not None and type(raw) is float and isfinite(raw):  # nearly all values, so nothing else first
                samples[gauge] = raw
                steps[gauge] = step
            else:
                self._value(draft, known, key, raw, prefix, step)
        if logs:
            self._stamp(draft, prefix, step)
        return step, bool(prefix)

    def see(self, draft: Draft, seen: Mapping[Series, Buckets], step: int) -> None:
        """Values that were counted where they lie."""
        named = {series.metric.series for series in seen}
        for series, counted in seen.items():
            if series not in draft.samples and series not in draft.buckets:
                draft.expect(series.metric)
            draft.merge(series, counted, step, twin=series.metric.of in named)

    def absorb(self, draft: Draft, update: StepUpdate) -> None:
        """All that was seen in a step, or in a part of one."""
        self.see(draft, update.seen, update.step)
        if update.duration is not None:
            draft.number((Series(self._named["rl_step_duration_seconds"]),), update.duration, update.step)
        for name, count in update.undefined.items():
            draft.undefined_values(self._named[name], count)
        for phase, seconds in update.phases.items():
            draft.set("rl_phase_time_seconds", seconds, phase)
        draft.add("rlexporter_observe_seconds_total", update.overhead)

    def known(self, key: str, line: Iterable[str]) -> tuple[Series, ...] | None:
        """The metrics that a key of a line with these keys feeds; None for a key that has not been seen."""
        known = self._known.get(evaluation_prefix(tuple(line)))
        targets = known and known.targets.get(key)
        return self._untapped(targets) if targets else None

    def resolve(self, draft: Draft, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """The same for any key, which is known from now on; one for which there is no room is counted as dropped."""
        prefix = evaluation_prefix(tuple(line))
        known = self._with(prefix)
        targets = known and (known.targets.get(key) or self._resolve(draft, known, key, prefix))
        if not targets:
            draft.add("rlexporter_dropped_keys_total", 1)
            return ()
        return self._untapped(targets)

    def _untapped(self, targets: tuple[Series, ...]) -> tuple[Series, ...]:
        return tuple(series for series in targets if not self._is_tapped(series.metric))

    def _is_tapped(self, metric: Metric) -> bool:
        """Whether it, or what it is a poorer view of, is seen at the tensor."""
        return metric in self.tapped or (bool(metric.of) and self._named[metric.of] in self.tapped)

    def _with(self, prefix: str) -> _Known | None:
        """What is known of lines with this evaluation prefix; None where there are too many of them."""
        if prefix not in self._known and len(self._known) > MAX_DATASETS:
            return None
        return self._known.setdefault(prefix, _Known({}, {}))

    def _value(self, draft: Draft, known: _Known, key: str, raw: object, prefix: str, step: int) -> None:
        """One key and whatever was logged under it."""
        value = raw if type(raw) is float else values.read(raw)
        if value is Unreadable.IGNORED:
            draft.add("rlexporter_ignored_values_total", 1)
            return
        targets = known.targets.get(key) or self._resolve(draft, known, key, prefix)
        if not targets:
            draft.add("rlexporter_dropped_keys_total", 1)
        elif type(value) is float:
            fresh = [series for series in targets if not self._is_tapped(series.metric)]
            draft.number(fresh, value, step, counted=len(fresh) < len(targets))
        elif value is Unreadable.UNDEFINED:
            draft.undefined(targets)
        elif not self._array(draft, targets, value, step):
            draft.add("rlexporter_ignored_values_total", 1)

    def _progress(self, draft: Draft, step: int | None, update: StepUpdate | None, *, evaluation: bool) -> int:
        """Move the step forward where this line or this update is ahead of it; the step that they belong to."""
        last = draft.get("rl_step")
        if update is not None:
            step = update.step
        elif evaluation:
            return int(last or 0) if step is None else step
        elif step is None:
            step = int(last or 0) + 1
        if last is None or step != last:
            draft.set("rl_step", step)
            draft.add("rl_steps_total", step - last if last is not None and step > last else 1)
            draft.set("rl_last_step_timestamp_seconds", self._clock())
        return step

    def _resolve(self, draft: Draft, known: _Known, key: str, prefix: str) -> tuple[Series, ...]:
        """What a key feeds that this run has not logged before; empty once there are too many of them."""
        found = self._resolver.resolve(str(key), prefix)
        unknown = not found
        if unknown or found[0].labels[bool(prefix) :]:
            if self._variable_keys >= self._max_keys:
                return ()
            self._variable_keys += 1
        if unknown:
            self._unmapped_keys += 1
            found = (Series(self._named["rl_logged_value"], (clip(str(key)),)),)
            draft.set("rlexporter_unmapped_keys", self._unmapped_keys)
        draft.expect(found[0].metric)
        known.targets[key] = found
        if len(found) == 1 and found[0].metric.kind is Kind.GAUGE:
            known.gauges[key] = found[0]
        return found

    def _array(self, draft: Draft, targets: tuple[Series, ...], array: Any, step: int) -> bool:
        """Several values under one key: counted one by one in a histogram, served as their mean elsewhere."""
        try:
            if self._is_tapped(targets[0].metric):
                return True
            if targets[0].metric.kind is Kind.HISTOGRAM:
                draft.merge(targets[0], host.count(array, targets[0].metric.bounds), step)
            else:
                draft.number(targets, host.mean(array), step)
        except Exception:  # noqa: BLE001 - torch and numpy refuse values in more ways than can be listed
            return False
        return True

    def _stamp(self, draft: Draft, prefix: str, step: int) -> None:
        if prefix:
            draft.set("rl_eval_timestamp_seconds", self._clock(), dataset(prefix))
            draft.set("rl_eval_step", step, dataset(prefix))
        else:
            draft.set("rl_last_log_timestamp_seconds", self._clock())
            draft.set("rl_last_log_step", step)
