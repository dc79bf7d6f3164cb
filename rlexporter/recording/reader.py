"""Reader of a recorded run: lines -> events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

from rlexporter.catalog import NAMED
from rlexporter.model.errors import SetupError
from rlexporter.model.framework import Framework
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.recording import codec, formats, run_facts
from rlexporter.recording.source import UNDERSTOOD, Line, UnreadableError
from rlexporter.recording.writers import translated
from rlexporter.store.keys import evaluation_prefix

_BEGINNINGS = ("meta", "train_begin")


@dataclass(frozen=True, slots=True)
class Event:
    """An event at ``time`` (seconds since the epoch, NaN if the file does not say).

    Exactly one kind of content is set, but a step's ``update`` may come with its ``logs``.
    """

    time: float
    step: int = 0
    logs: Mapping[str, object] | None = None
    update: StepUpdate | None = None
    part: StepUpdate | None = None
    state: RunState | None = None
    exception: str = ""


@dataclass(slots=True)
class Recording:
    """A recorded run."""

    path: Path
    facts: RunFacts
    run: str
    events: list[Event] = field(default_factory=list)
    watched: bool = False
    """True if the recorder would have written how the run ended."""
    began: float = nan
    """Time when recording began, before the first event: seconds since the epoch, NaN if the file does not say."""
    notes: tuple[str, ...] = ()
    """What had to be assumed, since the file does not say it."""


def read(path: str | Path, algorithm: str = "") -> Recording:
    """Return the recording in the file ``path``, or in the folder of a run; ``algorithm`` is used if it names none.

    Raises:
        UnreadableError: the file is no recorded run.
        SetupError: a package that reads the file is not installed.
    """
    with _at(str(path)):
        found = formats.find(Path(path))
        translation = translated(found.lines)
    made = _Parser(found.path, algorithm or translation.algorithm, translation.framework).all(translation.lines)
    made.notes = (*found.notes, *translation.notes)
    if not any(event.logs or event.update or event.state is RunState.FAILED for event in made.events):
        raise UnreadableError(f"{found.path}: has no log line: {UNDERSTOOD}")
    return made


class _Parser:
    """State of reading one file."""

    def __init__(self, path: Path, algorithm: str, framework: Framework | None) -> None:
        self._algorithm = algorithm
        self._framework = framework
        self._made = Recording(path, RunFacts(), "")
        self._keys: set[str] = set()
        self._metas: list[dict[str, Any]] = []

    def all(self, found: Iterable[Line]) -> Recording:
        for where, line in found:
            with _at(where):
                event = self._event(line)
                if event is not None:
                    self._add(event, line.get("event"))
        with _at(str(self._made.path)):
            self._made.run = run_facts.name(self._meta, self._made.path)
            facts = run_facts.facts(self._metas, self._keys, self._algorithm, self._framework)
            steps = [event.step for event in self._made.events if event.logs or event.update]
            self._made.facts = replace(facts, trimmed=facts.step is None and run_facts.is_trimmed(steps))
        return self._made

    @property
    def _meta(self) -> dict[str, Any]:
        return self._metas[-1] if self._metas else {}

    def _add(self, event: Event, kind: object) -> None:
        """Add ``event``; a log line is merged with its step if both were served in one change, as scrapes saw them."""
        events = self._made.events
        last = events[-1] if events and kind == "log" else None
        if last and last.update and not last.logs and last.step == event.step and not _is_evaluation(event):
            events[-1] = replace(event, update=last.update)
        else:
            events.append(event)

    def _event(self, line: dict[str, Any]) -> Event | None:
        kind, time = line.get("event"), _time(line.get("time"))
        if kind in _BEGINNINGS and not self._made.events and not isfinite(self._made.began):
            self._made.began = time
        if kind is None:
            logs = {key: value for key, value in line.items() if key not in ("step", "global_step", "time")}
            return self._log(time, line.get("step", line.get("global_step")), logs)
        if kind in ("log", "stats", "tracker_log"):
            return self._log(time, line.get("global_step"), line.get("stats" if kind == "stats" else "logs"))
        if kind in ("step", "part"):
            update = self._update(line)
            seen_in = Event(time, update.step)
            return replace(seen_in, update=update) if kind == "step" else replace(seen_in, part=update)
        return self._turn(kind, time, line)

    def _turn(self, kind: object, time: float, line: dict[str, Any]) -> Event | None:
        """Return the event of a run that begins, ends, or changes its state."""
        if kind == "snapshot":
            raise ValueError("this is the last state of a run and not its course: `rlexporter replay` serves it")
        if kind == "meta":
            self._metas.append(line)
            self._made.watched = True
        elif kind == "state":
            self._made.watched = True
            return Event(time, state=RunState(line.get("state")), exception=str(line.get("exception") or ""))
        elif kind == "crash":
            step = _step(line.get("global_step", 0))
            return Event(time, step, state=RunState.FAILED, exception=str(line.get("type") or ""))
        elif kind in ("train_end", "end"):
            return Event(time, state=RunState.FINISHED)
        return None

    def _log(self, time: float, step: object, logs: object) -> Event:
        if not isinstance(logs, dict):
            raise ValueError(f"a log line has no logs, but {logs!r:.80}")
        try:
            at = _step(step)
        except ValueError as error:
            raise ValueError(f"{error}: {logs!s:.80}") from None
        self._keys.update(logs)
        return Event(time, at, logs={key: _number(value) for key, value in logs.items()})

    def _update(self, line: dict[str, Any]) -> StepUpdate:
        """Return a recorded step, or a part of one."""
        values = {key: tuple(map(float, numbers)) for key, numbers in line.get("values", {}).items()}
        self._keys.update(values)
        return StepUpdate(
            step=_step(line.get("global_step")),
            duration=line.get("duration"),
            seen=codec.parse(line.get("seen", {}), self._meta.get("bounds", {})),
            undefined={name: int(count) for name, count in line.get("undefined", {}).items() if name in NAMED},
            values=values,
            phases={name: float(seconds) for name, seconds in line.get("phases", {}).items()},
        )


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Turn any error inside into an UnreadableError for the place ``where``."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign file can be wrong in any way
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{where}: cannot be understood: {said}") from None


def _is_evaluation(event: Event) -> bool:
    return bool(evaluation_prefix(tuple(event.logs or ())))


def _time(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else nan


def _step(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError("a line has no step" if value is None else f"{value!r} is no step")
    return int(value)


def _number(value: Any) -> Any:
    """Return ``value``; for an array that was recorded as a summary its mean, NaN with a NaN among its values."""
    if not isinstance(value, dict) or "__array__" not in value:
        return value
    return nan if value.get("nan") else inf if value.get("inf") else value.get("mean")
