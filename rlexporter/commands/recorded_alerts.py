"""Alerts that a recorded run would have raised: the same judge, on a file, without a server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any

from rlexporter.catalog import CATALOG, NONFINITE, RUN_FAILED, RUN_VANISHED
from rlexporter.conditions import from_catalog
from rlexporter.conditions.judge import Thresholds, Transition
from rlexporter.conditions.watch import Watch
from rlexporter.model.condition import Read, Severity
from rlexporter.model.snapshot import RunState
from rlexporter.recording import Event, Recording
from rlexporter.store.keys import Resolver, evaluation_prefix
from rlexporter.store.store import Store

NOTHING_JUDGED = 4
"""The exit status for a run of which nothing could be judged."""
_NAMED_KEYS = 8


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that would have fired, and the first step at which it would.

    ``value`` and ``threshold`` are in the unit of the metric; None for an alert on the state of the run.
    """

    alert: str
    condition: str
    family: str
    severity: str
    step: int
    metric: str
    value: float | None
    threshold: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in one recording."""

    file: str
    run: str
    algorithm: str
    steps: int
    alerts: tuple[Fired, ...]
    not_judged: tuple[tuple[str, str], ...]
    """Signals that could not be judged, each with the reason."""
    judged: bool = True
    """False if nothing in the recording feeds any condition."""
    unknown_keys: tuple[str, ...] = ()
    """The logged keys that the catalogue does not know."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume."""

    @property
    def status(self) -> int:
        """Return the exit status: 0 no alert, 1 a warning, 2 a critical one, 4 if nothing could be judged."""
        severities = {fired.severity for fired in self.alerts}
        if Severity.CRITICAL.value in severities:
            return 2
        return NOTHING_JUDGED if not self.judged else 1 if Severity.WARNING.value in severities else 0

    def as_json(self) -> dict[str, Any]:
        """Return the report for `json.dumps`."""
        missing = [{"signal": signal, "reason": reason} for signal, reason in self.not_judged]
        return {**asdict(self), "alerts": [asdict(fired) for fired in self.alerts], "not_judged": missing}

    def as_text(self) -> str:
        """Return the report for a person at a terminal."""
        lines = [f"{self.file}: {self.algorithm} run {self.run}, {self.steps} steps"]
        lines += [f"  note: {note}" for note in self.notes]
        for fired in sorted(self.alerts, key=lambda fired: fired.step):
            numbers = "" if fired.value is None else f"  {fired.metric} {fired.value:.4g} (limit {fired.threshold:.4g})"
            lines.append(f"  {fired.severity:8}  step {fired.step:<6} {fired.alert:24}{numbers}".rstrip())
        if not self.judged:
            lines.append(f"  nothing could be judged: {_why(self.unknown_keys)}")
        elif not self.alerts:
            lines.append("  no alert")
        if self.judged and self.not_judged:
            lines.append(f"  not judged: {', '.join(signal for signal, _ in self.not_judged)} (--json says why)")
        return "\n".join(lines)


def judge(recording: Recording, thresholds: Thresholds | None = None) -> Report:
    """Return the alerts that ``recording`` would have raised, with ``thresholds`` in place of the defaults."""
    clock = [nan]
    watch = from_catalog.watch(thresholds)
    store = Store(CATALOG, clock=lambda: clock[0], watch=watch)
    store.begin(recording.facts, {"run": recording.run, "rank": "0"})
    last = 0
    for event in recording.events:
        clock[0] = event.time
        feed(store, event)
        last = max(last, event.step if event.state is None else 0)
    store.settle()
    fired = [_fired(step, transition) for step, transition in watch.first.values()]
    return Report(
        file=str(recording.path),
        run=recording.run,
        algorithm=recording.facts.algorithm,
        steps=last,
        alerts=(*fired, *_ending(recording, last)),
        not_judged=_not_judged(watch, recording),
        judged=_is_judged(watch, store),
        unknown_keys=_unknown_keys(recording),
        notes=recording.notes,
    )


def feed(store: Store, event: Event) -> None:
    """Put the content of a recorded ``event`` into ``store``."""
    for update in (event.part, event.update):
        for series in update.seen if update else ():
            store.tap(series.metric)
    if event.part is not None:
        store.absorb(event.part)
    elif event.update is not None or event.logs is not None:
        store.record(event.logs or {}, event.step, event.update)


def _fired(step: int, transition: Transition) -> Fired:
    condition = transition.condition
    return Fired(
        condition.alert,
        condition.name,
        condition.family.value,
        transition.limit.severity.value,
        step,
        transition.series,
        transition.value,
        transition.threshold,
    )


def _ending(recording: Recording, last: int) -> tuple[Fired, ...]:
    """Return the alerts on the end of the run, in the step that did not end."""
    states = [event for event in recording.events if event.state is not None and event.state.over]
    failed = next((event for event in states if event.state is RunState.FAILED), None)
    if failed is None and (states or not recording.watched):
        return ()
    each = RUN_VANISHED if failed is None else RUN_FAILED
    step = max(last + 1, failed.step if failed else 0)
    return (Fired(each.alert, "", each.family.value, each.severity.value, step, "rl_run_state", None, None),)


def _is_judged(watch: Watch, store: Store) -> bool:
    """Return True if a series was fed that a condition of this run is judged by."""
    needed = {name: signal for name, signal in from_catalog.SIGNAL_NAMED.items() if watch.needs(name)}
    sources = {source.series for signal in needed.values() for source in signal.sources}
    sources.update(*(NONFINITE[name] for name in needed if name in NONFINITE))
    return any(series.metric.series in sources for series in store.snapshot.steps)


def _unknown_keys(recording: Recording) -> tuple[str, ...]:
    """Return the logged keys that the catalogue does not know, in the order in which they came."""
    resolver = Resolver(CATALOG, recording.facts.algorithm)
    shapes = dict.fromkeys(tuple(event.logs) for event in recording.events if event.logs)
    keys = {key: evaluation_prefix(shape) for shape in shapes for key in shape}
    return tuple(key for key, prefix in keys.items() if not resolver.resolve(key, prefix))


def _why(unknown: tuple[str, ...]) -> str:
    if not unknown:
        return "the log has no number that an alert is judged by"
    more = f" and {len(unknown) - _NAMED_KEYS} more (--json)" if len(unknown) > _NAMED_KEYS else ""
    return f"unknown keys {', '.join(unknown[:_NAMED_KEYS])}{more}"


def _not_judged(watch: Watch, recording: Recording) -> tuple[tuple[str, str], ...]:
    timed = any(not isnan(event.time) for event in recording.events)
    missing = []
    for signal in from_catalog.SIGNALS:
        if watch.heard(signal.name) or not watch.needs(signal.name):
            continue
        sources = [source.series for source in signal.sources if source.read is not Read.DERIVED]
        if signal.name == "step_time" and not timed:
            reason = "the recording has no times"
        elif sources:
            reason = f"nothing in the recording feeds {' or '.join(sources)}"
        elif signal.of and not watch.heard(signal.of):
            reason = f"needs {signal.of}, which is not there"
        elif recording.facts.trimmed:
            reason = "the log begins in the middle of the run, or does not show it"
        else:
            reason = "the recording does not show it"
        missing.append((signal.name, reason))
    return tuple(missing)
