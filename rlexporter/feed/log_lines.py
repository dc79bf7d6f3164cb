"""Reads log lines and writes them into a snapshot: finds the series that each key feeds, and the step of the line.

A line is read once, before anything is changed. The result may be written twice: if a signal handler writes in
between, the change is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any, NamedTuple

from rlexporter.conditions.view import LineNumbers
from rlexporter.feed.builder import SnapshotBuilder
from rlexporter.feed.keys import Resolver, clip, dataset, evaluation_prefix
from rlexporter.model import values
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Framework, Kind, Metric, Series
from rlexporter.model.step import StepUpdate
from rlexporter.model.values import Unreadable
from rlexporter.tensors import host

MAX_DATASETS = 20
"""The number of evaluation data sets that are told apart; lines of further ones are dropped and counted."""

_MAX_STEPWISE_KEYS = 2000
_NUMBERS = frozenset((float, int))
_MAX_PLANS = 16
"""The plans that are kept: a trainer has a few kinds of lines, such as that of a step without a rollout."""


@dataclass(slots=True)
class LogLine:
    """A log line, and the series that each of its values feeds."""

    prefix: str
    """The prefix of an evaluation; empty for a line of the training."""
    empty: bool = True
    keys: tuple[str, ...] = ()
    gauges: dict[Series, float] = field(default_factory=dict)
    """The finite numbers that feed exactly one gauge, nearly all of them; empty in a line that was read at a stroke."""
    planned: tuple[_Plan, list[float]] | None = None
    """The plan by which a line was read at a stroke, and its numbers."""
    numbers: list[tuple[tuple[Series, ...], float, bool]] = field(default_factory=list)
    """The other numbers: the series that each feeds, its value, and True if a tap counts NaN and infinities."""
    undefined: list[tuple[Series, ...]] = field(default_factory=list)
    """The series of keys that were logged as None."""
    arrays: list[tuple[Series, Histogram]] = field(default_factory=list)
    judged: LineNumbers = field(default_factory=LineNumbers)

    def values(self) -> Iterable[tuple[Series, float]]:
        """Return the numbers that feed exactly one gauge, each with its gauge."""
        if self.planned is None:
            return self.gauges.items()
        plan, numbers = self.planned
        return zip(plan.gauges, numbers, strict=True)


class _Known(NamedTuple):
    """The known keys of log lines with one evaluation prefix."""

    targets: dict[str, tuple[Series, ...]]
    """The series that each feeds."""
    gauges: dict[str, tuple[Series, ...]]
    """The same of the keys that feed one gauge as they are, and maybe other kinds besides: nearly all of them."""
    plans: dict[tuple[str, ...], _Plan]
    """How to read a line with just these keys, in this order."""


class _Plan(NamedTuple):
    """What a line feeds whose keys are known and whose values are finite numbers: nearly every line of a run."""

    tapped: int
    """The number of metrics that taps fed when the plan was made."""
    gauges: list[Series]
    """The gauge of each key."""
    names: list[str]
    """The name of each gauge; empty for one with labels."""
    functions: list[tuple[str, str, int]]
    """Name and label of the gauges that are judged label by label, and their places."""
    others: list[tuple[tuple[Series, ...], int]]
    """What some keys feed besides, and their places."""
    fed: dict[Series, float]
    """The gauges, each once: what is made of a dictionary need not be hashed."""
    blank: dict[str, float]
    """The names with 0: a copy is filled in half the time of an empty dictionary."""


class LogLines:
    """Reads and writes the log lines of one run.

    ``max_keys``: the most keys to accept that the catalog does not fix; ``guess``: returns the series that an unknown
    key of an unknown trainer seems to mean, given its first value. Only the thread that holds the lock of the feed may
    call a method.
    """

    def __init__(self, catalog: Sequence[Metric], max_keys: int, guess: Callable[[str, float], str]) -> None:
        self._catalog = catalog
        self._named = {metric.series: metric for metric in catalog}
        self._own = self._named["rl_logged_value"]
        self._logged_at = Series(self._named["rl_last_log_timestamp_seconds"])
        self._logged_step = Series(self._named["rl_last_log_step"])
        self._step = Series(self._named["rl_step"])
        self._steps = Series(self._named["rl_steps_total"])
        self._stepped_at = Series(self._named["rl_last_step_timestamp_seconds"])
        self._max_keys = max_keys
        self._guess = guess
        self._guessed: dict[str, str] = {}
        """The keys that were guessed, by the series that each feeds."""
        self._guesses = True
        self._unguessed = False
        self._resolver = Resolver(catalog)
        self._known: dict[str, _Known] = {}
        self._stepwise: dict[str, tuple[Series, ...]] = {}
        self.tapped: set[str] = set()
        self._variable: set[tuple[str, str]] = set()
        self._unmapped: set[tuple[str, str]] = set()
        self._owners: dict[Series, object] = {}
        """The unknown key that feeds each series: another one that looks the same there is dropped and counted."""
        self._dropped = 0
        self._ignored = 0

    def begin(self, algorithm: str, framework: Framework | None = None) -> Resolver:
        """Resolve keys as ``algorithm`` of ``framework`` uses them from now on; return the resolver."""
        self._resolver = Resolver(self._catalog, algorithm, framework)
        self._known.clear()
        self._stepwise.clear()
        self._guessed.clear()
        self._unguessed = False
        self._guesses = framework is None and not any(
            algorithm in key.algorithms for metric in self._catalog for key in metric.keys
        )
        return self._resolver

    def read(self, logs: Mapping[str, object], update: StepUpdate | None = None, *, served: bool = True) -> LogLine:
        """Read a line, and the numbers of its step that the trainer will average. ``logs`` is neither kept nor changed.

        ``served``: True if this rank serves its values; else only the kind of the line matters.
        """
        keys = tuple(logs)
        prefix = evaluation_prefix(keys)
        line = LogLine(prefix)
        known = self._with(prefix) if served else None
        if known is not None:
            line.empty = not logs
            line.keys = keys
            self._read(line, known, logs)
        elif served:
            self._dropped += len(logs)
        if update is not None or self._stepwise:
            self._prefer_steps(line.judged, logs, update)
        return line

    def write(
        self, builder: SnapshotBuilder, line: LogLine, step: int | None, update: StepUpdate | None, now: float
    ) -> int:
        """Write a line and the step update that belongs to it, either of which may be empty; return their step.

        ``now``: seconds since the epoch. A line that is ahead of the last step, or an update, moves the step forward.
        """
        last = builder.samples.get(self._step)
        if update is not None:
            step = update.step
        elif step is None:
            step = int(last or 0) + (not line.prefix)
        if (update is not None or not line.prefix) and (last is None or step != last):
            builder.samples[self._step] = step
            ahead = step - last if last is not None and step > last else 1
            builder.samples[self._steps] = builder.samples.get(self._steps, 0.0) + ahead
            builder.samples[self._stepped_at] = now
        if update is not None:
            self.absorb(builder, update)
        builder.gauges(line.values(), line.planned[0].fed if line.planned else line.gauges, step)
        for targets, value, counted in line.numbers:
            builder.number(targets, value, step, counted=counted)
        for undefined in line.undefined:
            builder.undefined(undefined)
        for series, array in line.arrays:
            builder.merge(series, array, step)
        self._account(builder)
        if line.prefix and not line.empty:
            builder.set("rl_eval_timestamp_seconds", now, dataset(line.prefix))
            builder.set("rl_eval_step", step, dataset(line.prefix))
        elif not line.empty:
            builder.samples[self._logged_at] = now
            builder.samples[self._logged_step] = step
        return step

    def see(self, builder: SnapshotBuilder, seen: Mapping[Series, Histogram], step: int) -> None:
        """Write the values that taps have counted."""
        named = {series.metric.series for series in seen}
        for series, counted in seen.items():
            builder.merge(series, counted, step, twin=series.metric.of in named)

    def absorb(self, builder: SnapshotBuilder, update: StepUpdate) -> None:
        """Write all observations of a step, or of a part of one."""
        self.see(builder, update.seen, update.step)
        if update.duration is not None:
            builder.number((Series(self._named["rl_step_duration_seconds"]),), update.duration, update.step)
        for name, count in update.undefined.items():
            builder.undefined_values(self._named[name], count)
        for phase, seconds in update.phases.items():
            builder.set("rl_phase_time_seconds", seconds, phase)
            builder.add("rl_phase_seconds_total", seconds, phase)
        builder.add("rlexporter_observe_seconds_total", update.overhead)

    def targets(self, key: str, line: Iterable[str]) -> tuple[Series, ...]:
        """Return the series that ``key`` feeds in a line with the keys ``line``, except those that taps feed.

        The result is empty if there is no room for another key; the next line counts that.
        """
        prefix = evaluation_prefix(tuple(line))
        known = self._with(prefix)
        targets = known and (known.targets.get(key) or self._resolve(known, key, prefix))
        if not targets:
            self._dropped += 1
        return self._untapped(targets or ())

    def _read(self, line: LogLine, known: _Known, logs: Mapping[str, object]) -> None:
        if self._read_as_planned(line, known, logs):
            return
        for key, raw in logs.items():
            targets = known.gauges.get(key) if type(raw) is float and isfinite(raw) else None
            if targets is None:
                self._value(line, known, key, raw)
                continue
            line.gauges[targets[0]] = raw  # type: ignore[assignment] # a float, as targets are known
            self._judge(line, targets, raw)  # type: ignore[arg-type]
            if len(targets) > 1:
                line.numbers.append((self._untapped(targets[1:]), raw, False))  # type: ignore[arg-type]
        if self._plan(line, known) is None and (plan := self._planned(line.keys, known)) is not None:
            if len(known.plans) >= _MAX_PLANS:
                known.plans.clear()
            known.plans[line.keys] = plan

    def _plan(self, line: LogLine, known: _Known) -> _Plan | None:
        """Return how to read this line; None if no line had its keys, or taps feed more than they did then."""
        plan = known.plans.get(line.keys)
        return plan if plan is not None and plan.tapped == len(self.tapped) else None

    def _read_as_planned(self, line: LogLine, known: _Known, logs: Mapping[str, object]) -> bool:
        """Read a line with the keys of an earlier one at a stroke. False if not all of it are finite numbers."""
        plan, judged, raw = self._plan(line, known), line.judged, [*logs.values()]
        if plan is None or not _NUMBERS.issuperset(map(type, raw)):
            return False
        try:
            numbers: list[float] = [*map(float, raw)]  # type: ignore[arg-type]
        except OverflowError:  # an integer beyond every float
            return False
        if not isfinite(sum(numbers)):
            return False
        line.planned, judged.numbers = (plan, numbers), plan.blank.copy()
        judged.numbers.update(zip(plan.names, numbers, strict=True))
        judged.numbers.pop("", None)
        for name, label, place in plan.functions:
            judged.functions.setdefault(name, {})[label] = numbers[place]
        line.numbers = [(targets, numbers[place], False) for targets, place in plan.others]
        return True

    def _planned(self, keys: tuple[str, ...], known: _Known) -> _Plan | None:
        """Return how to read the next line with the same ``keys``; None where one of them is special."""
        if not all(key in known.gauges for key in keys):
            return None
        fed = [known.gauges[key] for key in keys]
        gauges = [series for series, *_ in fed]
        names = ["" if series.labels else series.metric.series for series in gauges]
        functions = [
            (metric.series, "/".join(labels), place)
            for place, (metric, labels) in enumerate(gauges)
            if labels and metric is not self._own
        ]
        others = [(self._untapped(series[1:]), place) for place, series in enumerate(fed) if len(series) > 1]
        once, blank = dict.fromkeys(gauges, 0.0), dict.fromkeys(names, 0.0)
        return _Plan(len(self.tapped), gauges, names, functions, others, once, blank)

    def _judge(self, line: LogLine, targets: tuple[Series, ...], value: float) -> None:
        if targets[0].metric is not self._own:  # nobody knows what that is
            line.judged.note(targets, value)

    def _value(self, line: LogLine, known: _Known, key: str, raw: object) -> None:
        """Read one key and whatever was logged under it."""
        if self._resolver.is_no_metric(key):
            return
        value = raw if type(raw) is float else values.read(raw)
        if value is Unreadable.IGNORED:
            self._ignored += 1
            return
        targets = known.targets.get(key) or self._resolve(known, key, line.prefix, value)
        if not targets:
            self._dropped += 1
        elif type(value) is float:
            if value == self._resolver.nothing(key):
                return
            if isnan(value) and _of_one(targets[0], line.judged):
                line.undefined.append(targets)
                return
            value *= self._resolver.scale(targets[0].metric)
            self._judge(line, targets, value)
            fresh = self._untapped(targets)
            if len(targets) == 1 and fresh and targets[0].metric.kind is Kind.GAUGE and isfinite(value):
                line.gauges[targets[0]] = value
            else:
                line.numbers.append((fresh, value, len(fresh) < len(targets)))
        elif value is Unreadable.UNDEFINED:
            line.judged.note(targets, None)
            line.undefined.append(targets)
        elif not self._array(line, targets, value):
            self._ignored += 1

    def _prefer_steps(self, judged: LineNumbers, logs: Mapping[str, object], update: StepUpdate | None) -> None:
        """Judge by the numbers of each step, not by the mean over a window that the trainer logs under the same key."""
        of_step = update.values if update is not None else {}
        for key, averaged in self._stepwise.items():
            if key in logs and key not in of_step:
                judged.forget(averaged)
        for key, numbers in of_step.items():
            targets = self._stepwise.get(key)
            if targets is None:
                targets = self._resolver.resolve(str(key))
                if len(self._stepwise) < _MAX_STEPWISE_KEYS:
                    self._stepwise[key] = targets
            total, count = sum(numbers), len(numbers)
            if total - total != 0.0:
                finite = [number for number in numbers if isfinite(number)]
                total, count = sum(finite), len(finite)
            if count:
                judged.note(targets, total / count)
            elif key in logs:
                judged.forget(targets)

    def _untapped(self, targets: tuple[Series, ...]) -> tuple[Series, ...]:
        """Return those of ``targets`` that taps do not feed."""
        return tuple(series for series in targets if not self._is_tapped(series.metric))

    def _is_tapped(self, metric: Metric) -> bool:
        """Return True if taps feed ``metric``, or the metric that it is computed from."""
        return metric.series in self.tapped or metric.of in self.tapped

    def _with(self, prefix: str) -> _Known | None:
        """Return the known keys of lines with this evaluation ``prefix``; None if there are too many prefixes."""
        known = self._known.get(prefix)
        if known is None and len(self._known) <= MAX_DATASETS:
            known = self._known[prefix] = _Known({}, {}, {})
        return known

    def _resolve(self, known: _Known, key: str, prefix: str, value: object = None) -> tuple[Series, ...]:
        """Return the series that a new key of this training feeds; empty once there are too many keys."""
        targets = self._resolver.resolve(str(key), prefix)
        for series in targets if self._guessed else ():
            guessed = self._guessed.pop(series.metric.series, None)
            if guessed is not None:  # take the guess back: a key that is known feeds this series
                self._unguessed = True
                known.targets.pop(guessed)
                known.gauges.pop(guessed, None)
                known.plans.clear()
        as_logged = self._resolver.as_logged(str(key), prefix)
        if not as_logged:
            targets = targets or self._like(known, str(key), prefix, value)
        own, named = (prefix, str(key)), targets or as_logged
        if (not named or named[0].labels[bool(prefix) :]) and own not in self._variable:
            if len(self._variable) >= self._max_keys:
                return ()
            self._variable.add(own)
        if not targets:
            targets = (Series(self._own, (clip(str(key)),)),)
            owner = self._owners.setdefault(targets[0], key)
            if owner is not key and owner != key:  # two halves of surrogate pairs
                return ()
            if not as_logged:
                self._unmapped.add(own)
        known.targets[key] = targets
        gauge, *others = (series.metric for series in targets)
        plain = self._resolver.scale(gauge) == 1.0 and self._resolver.nothing(key) is None
        if plain and gauge.kind is Kind.GAUGE and all(other.kind is not Kind.GAUGE for other in others):
            known.gauges[key] = targets
        return targets

    def _like(self, known: _Known, key: str, prefix: str, value: object) -> tuple[Series, ...]:
        """Return the series that an unknown key seems to mean, unless another key feeds it."""
        if not self._guesses or prefix or type(value) is not float:
            return ()
        series = self._guess(key, value)
        fed = {target.metric.series for targets in known.targets.values() for target in targets} if series else ()
        if not series or series in fed:
            return ()
        self._guessed[series] = key
        return (Series(self._named[series]),)

    def _array(self, line: LogLine, targets: tuple[Series, ...], array: Any) -> bool:
        """Read several values under one key: a histogram counts them, a gauge shows the mean. False if unreadable."""
        try:
            if self._is_tapped(targets[0].metric):
                return True
            if targets[0].metric.kind is Kind.HISTOGRAM:
                line.arrays.append((targets[0], host.count(array, targets[0].metric.bounds)))
            else:
                line.numbers.append((targets, host.mean(array), False))
        except Exception:  # noqa: BLE001 - torch and numpy refuse values in more ways than can be listed
            return False
        return True

    def _account(self, builder: SnapshotBuilder) -> None:
        """Write the counts of keys and values that were not served as logged."""
        if self._unmapped:
            builder.set("rlexporter_unmapped_keys", len(self._unmapped))
        if self._unguessed:
            builder.clear("rlexporter_guessed_key_info")
        for series, key in self._guessed.items():
            builder.set("rlexporter_guessed_key_info", 1.0, clip(key), series)
        if self._dropped:
            builder.set("rlexporter_dropped_keys_total", self._dropped)
        if self._ignored:
            builder.set("rlexporter_ignored_values_total", self._ignored)


def _of_one(series: Series, line: LineNumbers) -> bool:
    """Return True if a NaN in ``series`` is the spread of a single value, which is undefined: its mean is a number."""
    stem, _, statistic = series.metric.series.rpartition("_")
    return statistic == "std" and not series.labels and f"{stem}_mean" in line.numbers
