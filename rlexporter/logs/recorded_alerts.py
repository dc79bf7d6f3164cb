"""Finds the alerts that a recorded run would have raised: the same judge, on a file, without a server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from typing import Any

from rlexporter.catalog.alerts import RUN_FAILED, RUN_VANISHED
from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions import table
from rlexporter.conditions.judge import Factor, Thresholds
from rlexporter.conditions.table import CONDITION_NAMED, series_of
from rlexporter.conditions.watch import Watch
from rlexporter.feed.keys import Resolver, evaluation_prefix
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.logs import playback
from rlexporter.logs.reader import Recording
from rlexporter.model.condition import Condition, Severity, Signal
from rlexporter.model.incident import FINE, Key
from rlexporter.model.snapshot import RunState
from rlexporter.run.run import Run
from rlexporter.status.account import incidents_as_json
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import LEAST_STEPS, Verdict, verdict

_OF_TIME = ("step_time", "longest_pause")
"""The signals that need the times of log lines."""
NOTHING_JUDGED = 4
"""The exit status for a run of which nothing could be judged, or that is too short."""
_TEXT_ONLY = ("verdict", "logged", "checks", "keys")


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that would have fired, and the first step at which it would.

    ``value`` and ``threshold`` are in ``unit``, that of the signal; None for an alert on the state of the run.
    """

    alert: str
    condition: str
    family: str
    severity: str
    step: int
    metric: str
    value: float | None
    threshold: float | None
    cause: str | None = None
    """The condition that this one is a symptom of; only the alert on that would have been sent."""
    own_step: int | None = None
    """The step from which a symptom would have been sent too: it outlived its cause, or began again."""
    unit: str = ""
    limit: str = ""
    """The limit as it is set: in ``unit``, or relative to the run's own past."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A signal that the recording does not show, and the conditions that are judged by it."""

    signal: str
    reason: str
    conditions: tuple[str, ...] = ()
    lacks: str = ""
    """The missing signal: this one, or one that it is computed from; empty if something else is missing."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in one recording."""

    file: str
    run: str
    algorithm: str
    steps: int
    alerts: tuple[Fired, ...]
    not_judged: tuple[NotJudged, ...]
    judged: bool = True
    """False if nothing in the recording feeds any condition."""
    unknown_keys: tuple[str, ...] = ()
    """The logged keys that the catalog does not know."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume."""
    framework: str = ""
    incidents: tuple[dict[str, Any], ...] = ()
    """All that went wrong until the end of the run: the same as `conditions[]` of `/api/status`."""
    part: str = ""
    """Which of several trainings in the file it is, in words; empty if there is one."""
    guesses: Mapping[str, str] = field(default_factory=dict)
    """The keys that are taken for a series by their last part."""
    verdict: Verdict = field(default_factory=lambda: Verdict(FINE, "ok", [], ""))
    """The verdict on the run at its end, as its page has it."""
    logged: int = LEAST_STEPS
    """The number of steps of which the log tells something."""
    checks: Mapping[str, bool] = field(default_factory=dict)
    """The conditions that the run could be judged by, each with whether it was."""
    keys: Collection[str] = ()
    """The logged keys."""

    @property
    def too_short(self) -> bool:
        """Return True if there are too few steps to judge the run."""
        return self.logged < LEAST_STEPS

    @property
    def status(self) -> int:
        """Return the exit status: 0 no alert, 1 a warning, 2 a critical one, 4 if nothing was judged, or too little."""
        severities = {fired.severity for fired in self.alerts}
        if Severity.CRITICAL.value in severities:
            return 2
        return NOTHING_JUDGED if not self.judged or self.too_short else 1 if Severity.WARNING.value in severities else 0

    @property
    def stop(self) -> Fired | None:
        """Return the alert at which ``on_critical="stop"`` would have stopped the run; None if there is none.

        It is the first critical one of a condition that may stop a run, and is no symptom or one no more: its ``step``
        is that. An alert on the process has no condition: what has failed has stopped already.
        """
        may = {name for name, condition in CONDITION_NAMED.items() if condition.stops}
        critical = [each for each in self.alerts if each.severity == Severity.CRITICAL.value and each.condition in may]
        own = [fired for fired in critical if fired.cause is None]
        own += [replace(each, step=each.own_step) for each in critical if each.cause and each.own_step is not None]
        return min(own, key=lambda fired: fired.step, default=None)

    @property
    def saved(self) -> int:
        """Return the percentage of the steps that such a stop would have saved, rounded down; 0 without one."""
        stop = self.stop
        return 0 if stop is None else 100 * max(0, self.steps - stop.step) // max(1, self.steps)

    def as_json(self) -> dict[str, Any]:
        """Return what programs get: all but what only the text needs."""
        stop = self.stop
        told = None if stop is None else {"step": stop.step, "of": self.steps, "condition": stop.condition}
        return {name: value for name, value in asdict(self).items() if name not in _TEXT_ONLY} | {"stop": told}


def judge(
    recording: Recording, thresholds: Thresholds | None = None, mapping: Mapping[str, str] | None = None
) -> Report:
    """Return the alerts that ``recording`` would have raised, with ``thresholds`` in place of the defaults.

    ``mapping``: what keys mean that the catalog does not know.
    """
    given = {"thresholds": thresholds or {}, "map": mapping or {}}
    return report(playback.played(recording, given).run, recording)


def report(run: Run, recording: Recording) -> Report:
    """Return the alerts of ``recording``, which was played into ``run``."""
    watch = run.watch
    sources = {series for condition, _ in watch.limits for series in series_of(condition.signal)}
    judged = any(series.metric.series in sources for series in run.feed.snapshot.steps)
    last = max((event.step for event in recording.events if event.state is None), default=0)
    samples = Samples(run.feed.snapshot)
    guesses = {key: series for key, series in samples.of("rlexporter_guessed_key_info")}  # noqa: C416 - keys are pairs
    fired = [_fired(watch, key, run.settings.thresholds) for key in watch.first]
    resolver = Resolver(CATALOG, recording.facts.family, FRAMEWORKS.get(recording.facts.framework))
    shapes = dict.fromkeys(tuple(event.logs) for event in recording.events if event.logs)
    logged = {key: evaluation_prefix(shape) for shape in shapes for key in shape}  # in the order of the log
    mapped = {*run.settings.map, *guesses}
    unknown = tuple(key for key, prefix in logged.items() if key not in mapped and not resolver.knows(key, prefix))
    return Report(
        file=str(recording.path),
        run=recording.run,
        algorithm=recording.facts.algorithm,
        framework=recording.facts.framework,
        steps=last,
        alerts=(*fired, *_ending(recording, last, watch)),
        not_judged=_not_judged(watch, recording),
        judged=judged,
        unknown_keys=unknown,
        guesses=guesses,
        notes=recording.notes,
        incidents=tuple(incidents_as_json(samples)),
        part=recording.part,
        verdict=verdict(samples, run.clock()),
        logged=len({event.step for event in recording.events if event.state is None}),
        checks={name: judged and ran == 1.0 for (name,), ran in samples.of("rl_condition_judged").items()},
        keys=frozenset(key for event in recording.events for key in event.logs or ()),
    )


def _fired(watch: Watch, key: Key, thresholds: Thresholds) -> Fired:
    step, begun = watch.first[key]
    condition, severity = begun.condition, begun.limit.severity.value
    factor = thresholds.get((condition.name, severity))
    return Fired(
        condition.alert,
        condition.name,
        condition.family.value,
        severity,
        step,
        begun.series,
        None if condition.finding else begun.value,
        None if condition.finding else begun.threshold,
        _condition(watch.causes[key]),
        watch.alone.get(key),
        table.SIGNAL_NAMED[condition.signal].unit,
        limit_in_words(condition, factor or begun.limit.value, begun.threshold),
    )


def limit_in_words(condition: Condition, factor: Factor | None, threshold: float) -> str:
    """Return what a limit is relative to: `0.35 x its start`; empty for an absolute limit.

    ``factor``: the number that is set, or one for each variant of the signal; ``threshold``: the limit that results.
    """
    detector = condition.detector
    if not detector.relative or factor is None:
        return ""
    floors = detector.floor.values() if isinstance(detector.floor, Mapping) else (detector.floor,)
    if not condition.below and threshold in floors:
        return "the least that it can be"
    factors = factor.values() if isinstance(factor, Mapping) else (factor,)
    written = " or ".join(f"{number:g}" for number in factors)
    return f"{written} {detector.words}"


def _condition(key: Key | None) -> str | None:
    return key[0] if key else None


def _ending(recording: Recording, last: int, watch: Watch) -> tuple[Fired, ...]:
    """Return the alert on how the run ended, at the step that was never finished; none for a good end."""
    states = [event for event in recording.events if event.state is not None and event.state.over]
    failed = next((event for event in states if event.state is RunState.FAILED), None)
    if failed is None and (states or not recording.watched):
        return ()
    alert, step = (RUN_VANISHED, last + 1) if failed is None else (RUN_FAILED, max(last + 1, failed.step))
    cause = _condition(watch.of_failure().cause) if failed else None
    return (Fired(alert.alert, "", alert.family.value, alert.severity.value, step, "rl_run_state", None, None, cause),)


def _not_judged(watch: Watch, recording: Recording) -> tuple[NotJudged, ...]:
    conditions: dict[str, list[str]] = {}
    for condition, _ in watch.limits:
        conditions.setdefault(condition.signal, []).append(condition.name)
    timeless = all(isnan(event.time) for event in recording.events)
    missing = []
    for signal in table.SIGNALS:
        if signal.name in conditions and not watch.heard(signal.name):
            lacks = _lacking(watch, signal)
            if signal.name in _OF_TIME and timeless:
                reason = "the recording has no times"
            elif lacks:
                reason = f"nothing in the recording feeds {' or '.join(series_of(lacks))}"
            elif recording.facts.trimmed:
                reason = "the log begins in the middle of the run, or nothing in it shows it"
            else:
                reason = "too few steps, or nothing in the recording shows it"
            missing.append(NotJudged(signal.name, reason, tuple(dict.fromkeys(conditions[signal.name])), lacks))
    return tuple(missing)


def _lacking(watch: Watch, signal: Signal) -> str:
    """Return the signal without a value that ``signal`` is read or computed from; empty if there is none."""
    if not all(source.derived for source in signal.sources):
        return signal.name
    inputs = [table.SIGNAL_NAMED[name] for name in (signal.of, *signal.after) if name]
    return next((_lacking(watch, silent) for silent in inputs if not watch.heard(silent.name)), "")
