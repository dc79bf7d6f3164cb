"""Reads a recorded run: lines -> events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

from rlexporter.catalog.metrics import NAMED
from rlexporter.feed.keys import evaluation_prefix
from rlexporter.logs import formats, run_facts, trainings
from rlexporter.logs.dialect import Dialect
from rlexporter.logs.source import UNDERSTOOD, Found, Line
from rlexporter.logs.trainings import Kind
from rlexporter.model.errors import SetupError, UnreadableError
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import LAST_STEP, RunFacts, StepUpdate
from rlexporter.recording import codec

_BEGINNINGS = ("meta", "train_begin")
_FIRST_STEPS = 100
_MOST_KEYS = 10_000


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
    awaits: bool = False
    """True for a line or a step whose counts were still on their way from a device."""
    last: bool | None = None
    """True for the last part that was on its way from a device; None for a part that came from none."""
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
    """When recording began, before the first event: seconds since the epoch, NaN if the file does not say."""
    notes: tuple[str, ...] = ()
    """What had to be assumed because the file does not say it."""
    part: str = ""
    """Which of several trainings in the file it is, in words; empty if there is one."""


def read(path: str | Path, algorithm: str = "") -> Recording:
    """Return the recording in the file or folder ``path``, of several trainings the first of `read_all`.

    Raises as `read_all`.
    """
    return read_all(path, algorithm)[0]


def read_all(path: str | Path, algorithm: str = "") -> list[Recording]:
    """Return the trainings in the file or folder ``path``: those by RL first, of these the longest.

    ``algorithm`` is used if the file names none; beside an RL training for no other kind.

    Raises:
        UnreadableError: the file is no recorded run.
        SetupError: a package that reads the file is not installed.
    """
    with _at(str(path)):
        log = formats.find(Path(path))
        found = trainings.split(log.lines)
    any_rl = any(training.kind is Kind.RL for training in found)
    recordings = []
    for number, training in enumerate(found, 1):
        is_rl = training.kind is Kind.RL
        recording = _recording(log, training.lines, algorithm if is_rl or not any_rl else "")
        if recording is not None:
            if len(found) > 1:
                recording.part = f"training {number} of {len(found)} in this file: {training.extent(log.path)}"
            recordings.append((not is_rl, -len(training.lines), number, recording))
    if not recordings:
        raise UnreadableError(f"{log.path}: has no log line: {UNDERSTOOD}")
    return [recording for *_, recording in sorted(recordings, key=lambda each: each[:3])]


def _recording(log: Found, lines: Sequence[Line], algorithm: str) -> Recording | None:
    """Return the recording of the ``lines`` of one training in ``log``; None if none of them is a log line."""
    parser = Parser(algorithm)
    with _at(str(log.path)):
        parser.dialect.learn(lines)
    events = [*chain.from_iterable(map(parser.events, lines)), *parser.settle()]
    if not any(event.logs or event.update or event.state is RunState.FAILED for event in events):
        return None
    with _at(str(log.path)):
        name = lines[0].of or run_facts.name(parser.meta, log.path)
        facts = replace(parser.facts_so_far(), run_name=name)
    notes = (*log.notes, *parser.dialect.notes)
    return Recording(log.path, facts, name, events, parser.watched, parser.began, notes)


class Parser:
    """Turns the lines of a log into events. ``algorithm``: of the run, if the lines do not name it.

    `dialect` has to learn from a line before it is parsed.
    """

    def __init__(self, algorithm: str = "") -> None:
        self.dialect = Dialect()
        self.watched = False
        """True for a recording of rlexporter's own, which says itself how its run began and ended."""
        self.began = nan
        """Time when recording began, as `Recording` says."""
        self._algorithm = algorithm
        self._keys: set[str] = set()
        self._metas: list[dict[str, Any]] = []
        """The first one, and the last one."""
        self._steps: list[int] = []
        """The steps with which the log begins."""
        self._begun = False
        self._step_alone: Event | None = None
        """A step that the next line may belong to."""

    @property
    def meta(self) -> dict[str, Any]:
        """Return what the last run that began has recorded of itself; empty if nothing."""
        return self._metas[-1] if self._metas else {}

    def facts_so_far(self, *, newest: bool = False) -> RunFacts:
        """Return the known facts of the run; if it began several times, of the first attempt or the ``newest``."""
        dialect, metas = self.dialect, self._metas[-1:] if newest else self._metas
        facts = run_facts.facts(metas, self._keys, self._algorithm or dialect.algorithm, dialect.framework)
        planned = dialect.planned if facts.steps_planned is None else facts.steps_planned
        return replace(facts, steps_planned=planned, trimmed=facts.step is None and run_facts.is_trimmed(self._steps))

    @property
    def known(self) -> object:
        """Return something that differs whenever the facts may differ."""
        return len(self._keys), len(self._metas), self.dialect.algorithm, self.dialect.planned

    @property
    def interval(self) -> float:
        """Return the steps from one log line to the next, at the beginning of the log."""
        return run_facts.interval(self._steps)

    def events(self, line: Line) -> Iterator[Event]:
        """Yield the events that are complete with the next ``line``. Raises UnreadableError, and can go on after it."""
        for plain in self.dialect.lines(line):
            yield from self._merged(plain)

    def _merged(self, line: Line) -> Iterator[Event]:
        """Yield the event of a translated line, merged with its step if both were served in one change."""
        with _at(line.where):
            event = self._event(line.logs)
        if event is None:
            return
        before, self._step_alone = self._step_alone, None
        if before is not None:
            evaluates = evaluation_prefix(tuple(event.logs or ()))
            if line.logs.get("event") == "log" and before.step == event.step and not evaluates:
                event, before = replace(event, update=before.update), None
            else:
                yield before
        if event.update is not None and event.logs is None:
            self._step_alone = event
        else:
            yield event

    def settle(self) -> Iterator[Event]:
        """Yield the step that waited for its log line, which has not come."""
        before, self._step_alone = self._step_alone, None
        if before is not None:
            yield before

    def _event(self, line: dict[str, Any]) -> Event | None:
        kind, time = line.get("event"), line.get("time")
        time = float(time) if isinstance(time, (int, float)) and isfinite(time) else nan
        if kind in _BEGINNINGS and not self._begun and not isfinite(self.began):
            self.began = time
        event = self._made(kind, time, line)
        if event is not None:
            self._begun = True
            if (event.logs or event.update) and len(self._steps) < _FIRST_STEPS:
                self._steps.append(event.step)
        return event

    def _made(self, kind: object, time: float, line: dict[str, Any]) -> Event | None:
        if kind is None:
            logs = {key: value for key, value in line.items() if key not in ("step", "global_step", "time")}
            return self._log(time, line.get("step", line.get("global_step")), logs)
        if kind in ("log", "stats", "tracker_log"):
            event = self._log(time, line.get("global_step"), line.get("stats" if kind == "stats" else "logs"))
            return replace(event, awaits=True) if line.get("awaits") is True else event
        if kind in ("step", "part"):
            update = self._update(line)
            if kind == "step":
                return Event(time, update.step, update=update, awaits=line.get("awaits") is True)
            last = line.get("last")
            return Event(time, update.step, part=update, last=last if isinstance(last, bool) else None)
        if kind == "snapshot":
            raise ValueError("this is the last state of a run and not its course: `rlexporter replay` serves it")
        if kind == "meta":
            self._metas[1:] = [line]
            self.watched = True
        elif kind == "state":
            self.watched = True
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
        self._know(logs)
        return Event(time, at, logs={key: _number(value) for key, value in logs.items()})

    def _update(self, line: dict[str, Any]) -> StepUpdate:
        """Return a recorded step, or a part of one."""
        values = {key: tuple(map(float, numbers)) for key, numbers in line.get("values", {}).items()}
        self._know(values)
        return StepUpdate(
            step=_step(line.get("global_step")),
            duration=line.get("duration"),
            seen=codec.parse(line.get("seen", {}), self.meta.get("bounds", {})),
            undefined={name: int(count) for name, count in line.get("undefined", {}).items() if name in NAMED},
            values=values,
            phases={name: float(seconds) for name, seconds in line.get("phases", {}).items()},
        )

    def begin_anew(self, keys: Iterable[str]) -> None:
        """Forget the training before if the next one, which begins with ``keys``, is of another algorithm."""
        own = set(keys)
        known, begun = (run_facts.facts((), some, "").algorithm for some in (self._keys, own))
        if begun not in (known, "custom"):
            self._keys = own

    def _know(self, keys: Iterable[str]) -> None:
        if len(self._keys) < _MOST_KEYS:
            self._keys.update(keys)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Turn any error inside the block into an UnreadableError for the place ``where``."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign file can be wrong in any way
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{where}: cannot be understood: {said}") from None


def _step(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LAST_STEP:
        raise ValueError("a line has no step" if value is None else f"{value!r} is no step")
    return int(value)


def _number(value: Any) -> Any:
    """Return ``value``, or the mean of an array that was recorded as a summary; NaN if it held a NaN."""
    if not isinstance(value, dict) or "__array__" not in value:
        return value
    return nan if value.get("nan") else inf if value.get("inf") else value.get("mean")
