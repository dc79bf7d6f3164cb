"""Translates the log lines of other writers into those of TRL: their steps, numbers as texts, prefixes of trackers.

The keys stay those of their framework, whose table in `rlexporter.catalog.frameworks` says what they feed. Lines that
carry an ``event`` are those of recorders, and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from rlexporter.catalog import CATALOG, FRAMEWORKS, TRL, family_of, written_by
from rlexporter.model.framework import Framework
from rlexporter.recording.source import Line
from rlexporter.store.keys import Resolver

_STEPS = (
    ("step", "global_step"),
    # transformers, verl, Lightning; OpenRLHF names the step of an evaluation so
    ("train/global_step", "training/global_step", "trainer/global_step", "eval/global_step"),
    ("current_steps",),  # LLaMA-Factory
    ("global_step/max_steps",),  # ms-swift: "10/100"
    ("_step",),  # W&B: of its calls, which may be several a step
)
STEPS = tuple(key for keys in _STEPS for key in keys)
"""The keys of a step, the best first."""
_TIME, _WANDB_TIME = "time", "_timestamp"
_ROUNDED = 100.0
"""Times that are all multiples of so many seconds were rounded on the way, and tell the pace of no step."""
_NO_METRICS = frozenset((*STEPS, _TIME, _WANDB_TIME, "_runtime"))
_PLANNED = {"current_steps": "total_steps"}

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE | re.ASCII)
_OF = re.compile(r"(\d+)/\d+", re.ASCII)

_RESOLVERS = {name: Resolver(CATALOG, framework=FRAMEWORKS.get(name)) for name in (TRL, *FRAMEWORKS)}


@cache
def is_known(key: str, framework: str = "") -> bool:
    """Return True if the catalogue has ``key`` for some algorithm of ``framework``, or of any without one."""
    asked = (_RESOLVERS[framework],) if framework else _RESOLVERS.values()
    return any(each.resolve(key) for each in asked)


def is_number(value: object) -> bool:
    """Return True for a text that is a number, NaN and the infinities among them."""
    return isinstance(value, str) and bool(_NUMBER.fullmatch(value.strip()))


class Translation(NamedTuple):
    """The lines of a file with steps, times and numbers as TRL writes them."""

    lines: list[Line]
    framework: Framework | None
    """The framework whose keys the lines have; None for those of TRL."""
    algorithm: str
    """The algorithm that is known by the framework; empty if the keys have to tell."""
    notes: tuple[str, ...]
    """What had to be assumed."""


def translated(lines: Iterable[Line]) -> Translation:
    """Return ``lines`` with the steps, times and keys that the reader knows."""
    found = [(where, line if "event" in line else _opened(line)) for where, line in lines]
    dialect = _Dialect([line for _, line in found if "event" not in line])
    made = [each for where, line in found for each in dialect.lines(where, line)]
    return Translation(
        made,
        dialect.framework,
        dialect.algorithm,
        ("the file has no steps: its log lines are counted",) * dialect.counted,
    )


def _opened(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line in what verl's logger ``file`` writes: ``{"step": 1, "data": {...}}``."""
    data = line.get("data")
    rest = {key: value for key, value in line.items() if key != "data"}
    return {**data, **rest} if isinstance(data, dict) and set(rest) <= _NO_METRICS else line


class _Dialect:
    """The writer of one file. ``lines``: all that have no event."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        keys = {key for line in lines for key in line}
        self._steps = next((names for names in _STEPS if not keys.isdisjoint(names)), ())
        self.counted = bool(lines) and not self._steps
        self._step: object = 0
        times = [_value(line[_WANDB_TIME]) for line in lines if _WANDB_TIME in line]
        exact = any(isinstance(each, (int, float)) and each % _ROUNDED for each in times)
        self._times = (_TIME, _WANDB_TIME) if exact else (_TIME,)
        self.framework = written_by(keys)
        self._name = TRL if self.framework is None else self.framework.name
        self.algorithm = "" if self.framework is None else family_of(self.framework, keys)
        self._shapes: dict[tuple[str, ...], dict[str, str]] = {}

    def lines(self, where: str, line: dict[str, Any]) -> Iterator[Line]:
        """Yield ``line`` as TRL would have logged it; an evaluation beside it becomes a line of its own."""
        if "event" in line:
            yield where, line
            return
        keys = tuple(line)
        if keys not in self._shapes:
            self._shapes[keys] = self._renamed(keys)
        names = self._shapes[keys]
        logs = {names[key]: _value(value) for key, value in line.items() if key in names}
        step = self._step_of(line)
        time = next((_value(line[key]) for key in self._times if key in line), None)
        head = {**({} if step is None else {"step": step}), **({} if time is None else {"time": time})}
        evaluated = {names[key] for key in names if key.startswith("eval/") and names[key] != key}
        training = {key: value for key, value in logs.items() if key not in evaluated}
        if training or not evaluated:
            yield where, {**head, **training}
        if evaluated:
            yield where, {**head, **{key: logs[key] for key in logs if key in evaluated}}

    def _step_of(self, line: Mapping[str, Any]) -> object:
        """Return the step of a line, None if it has none although others have one of the same kind only."""
        own = next((line[key] for key in self._steps if line.get(key) is not None), None)
        if own is not None:
            self._step = _number_in_step(own)
        elif self.counted:
            self._step = int(str(self._step)) + 1
        elif not any(key in line for key in STEPS):
            return None
        return self._step

    def _renamed(self, keys: tuple[str, ...]) -> dict[str, str]:
        """Return the keys of a line that are metrics, each with its name in TRL."""
        left_out = {total for own, total in _PLANNED.items() if own in keys}
        return {key: _plain(key, self._name) for key in keys if key not in _NO_METRICS and key not in left_out}


def _plain(key: str, framework: str) -> str:
    """Return ``key`` without what transformers puts before it for trackers: ``train/kl``, ``eval/reward``."""
    if is_known(key, framework):
        return key
    kind, _, rest = key.partition("/")
    name = {"train": rest, "eval": f"eval_{rest}"}.get(kind, key)
    return name if is_known(name, framework) else key


def _number_in_step(value: object) -> object:
    """Return the number in a text that is one, or begins with one as ``10/100`` does; else ``value``."""
    if isinstance(value, str) and (match := _OF.fullmatch(value.strip())):
        return int(match[1])
    return _value(value)


def _value(value: object) -> object:
    return float(value) if isinstance(value, str) and is_number(value) else value
