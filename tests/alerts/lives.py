"""Runs as Prometheus sees them: processes with their states, steps and conditions, written as series of promtool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rlexporter.model.snapshot import RunState

EVERY = 15
"""Seconds from one scrape to the next."""


@dataclass(frozen=True)
class Event:
    """A condition that begins ``at`` seconds of the test, and holds for so many seconds."""

    condition: str
    at: int
    holds: int = EVERY
    severity: str = "critical"
    value: float = 7.0
    threshold: float = 3.0
    step: int = 40
    symptom: bool = False


@dataclass(frozen=True)
class Process:
    """A process that is scraped from ``born`` on, in these states for so many seconds each, and is then gone."""

    states: Sequence[tuple[str, int]]
    born: int = 0
    instance: str = "h:1"
    run: str = "a"
    clock: int = 0
    """How many seconds its clock is ahead of Prometheus."""
    steps: Sequence[int] = (0,)
    """The step of each scrape; it stays at the last."""
    hangs: int = 10**9
    """When its last step ends, in seconds of the test."""
    stall_after: int = 600
    events: Sequence[Event] = ()
    died_of_nan: bool = False
    """Whether the process says of its failure that a value which was no number explains it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    says: Sequence[tuple[int, int, str]] = ()
    """Its verdict from such a second on, 0 to 2, and the condition that it names first."""
    rank: int = 0
    more: Mapping[str, float] = field(default_factory=dict)
    """Other series of the process, as ``name{labels}``, each with a value."""

    @cached_property
    def _names(self) -> dict[tuple[object, ...], str]:
        return {}

    def name(self, series: str, **labels: str) -> str:
        """The series with the labels of this process."""
        key = (series, *labels.items())
        if key not in self._names:
            self._names[key] = self._named(series, labels)
        return self._names[key]

    def _named(self, series: str, labels: Mapping[str, str]) -> str:
        own = {
            "run": self.run,
            "rank": str(self.rank),
            "instance": self.instance,
            "job": "rl",
            "namespace": "ml",
            **self.labels,
        }
        metric, _, inside = series.rstrip("}").partition("{")
        pairs = [f'{key}="{value}"' for key, value in {**own, **labels}.items()]
        return f"{metric}{{{','.join([*pairs, *([inside] if inside else [])])}}}"

    def at(self, time: int) -> dict[str, float]:
        """What a scrape at this time gives."""
        here, state = time - self.born, ""
        for name, seconds in self.states:
            if 0 <= here < seconds:
                state = name
                break
            here -= seconds
        if not state:
            return {}
        index = min((time - self.born) // EVERY, len(self.steps) - 1)
        found = {
            self.name("rl_run_start_timestamp_seconds"): self.born + self.clock,
            self.name("rlexporter_time_seconds"): time + self.clock,
            self.name("rl_last_step_timestamp_seconds"): min(time, self.hangs) + self.clock,
            self.name("rl_stall_after_seconds"): self.stall_after,
            self.name("rl_step"): self.steps[index],
            **{self.name("rl_run_state", state=each.value): float(each.value == state) for each in RunState},
            **{self.name(series): value for series, value in self.more.items()},
        }
        for event in self.events:
            found |= self._event(event, time)
        for _, word, condition in [each for each in self.says if each[0] <= time][-1:]:
            found[self.name("rl_run_verdict")] = word
            if word:
                labels = {"condition": condition, "severity": "critical", "subject": "", "signal": "s"}
                found[self.name("rl_run_cause_info", **labels)] = 1.0
        if state == RunState.FAILED.value and self.died_of_nan:
            found[self.name("rl_condition_symptom", condition="run_failed", severity="critical")] = 1.0
        return found

    def _event(self, event: Event, time: int) -> dict[str, float]:
        if time < event.at:
            return {}
        of = {"condition": event.condition, "severity": event.severity}
        found = {
            self.name("rl_condition", **of): float(time < event.at + event.holds),
            self.name("rl_condition_last_event_timestamp_seconds", **of): event.at + self.clock,
            self.name("rl_condition_last_event_step", **of): event.step,
            self.name("rl_condition_last_event_value", **of): event.value,
            self.name("rl_condition_last_event_threshold", **of): event.threshold,
        }
        if event.symptom:
            found[self.name("rl_condition_symptom", **of)] = 1.0
        return found


Spans = Sequence[tuple[int, int]]
"""Seconds of the test, each from one on and until before another."""


def series(processes: Iterable[Process], seconds: int, away: Spans = (), unwatched: Spans = ()) -> dict[str, str]:
    """The series of these processes for so long.

    In the spans ``away`` all scrapes fail, in those ``unwatched`` there is nobody who scrapes.
    """
    every = list(processes)
    times = range(0, seconds + EVERY, EVERY)
    found: dict[str, dict[int, float]] = {}
    for process in every:
        for time in times:
            if not within(time, away) and not within(time, unwatched):
                for name, value in process.at(time).items():
                    found.setdefault(name, {})[time] = value
    watched = [not within(time, unwatched) for time in times]
    return {name: _written([values.get(time) for time in times], watched) for name, values in found.items()}


def within(time: int, spans: Spans) -> bool:
    """Whether a second lies in one of the spans."""
    return any(begin <= time < end for begin, end in spans)


def _written(values: Sequence[float | None], watched: Sequence[bool]) -> str:
    """The values in the short form of promtool; a series that was there in the last scrape and is not is stale."""
    words: list[tuple[str, int]] = []
    before = None
    for value, scraped in zip(values, watched, strict=True):
        word = f"{value:g}" if value is not None and value < 1e6 else "_" if value is None else repr(value)
        if value is None and before is not None and scraped:
            word = "stale"
        before = value
        if words and words[-1][0] == word:
            words[-1] = (word, words[-1][1] + 1)
        else:
            words.append((word, 1))
    # `1x2` is 1 three times, `_x2` is a gap of two.
    return " ".join(word if count == 1 else f"{word}x{count - (word != '_')}" for word, count in words)
