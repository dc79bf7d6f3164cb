"""Translates log lines of other writers into those of TRL: steps, numbers written as texts, prefixes of trackers.

The keys stay those of their framework; its table in `rlexporter.frameworks` says what they feed. Lines with an
``event`` come from recorders, and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import isfinite
from typing import Any

from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.keys import Resolver, evaluation_prefix
from rlexporter.frameworks.common import STEP_KEYS
from rlexporter.frameworks.known import FRAMEWORKS, TRL, family_of, written_by
from rlexporter.logs.source import Line
from rlexporter.model.metric import Framework

OWN_STEPS = (
    *("step", *STEP_KEYS),
    "current_steps",  # LLaMA-Factory
    *("global_step/max_steps", "iteration"),  # ms-swift: "10/100"; the second of its Megatron trainers
)
"""The keys that hold a step of the training, the best first."""
_CALLS = "_step"
"""W&B: the number of a call; a step may have several."""
STEPS = (*OWN_STEPS, _CALLS)
"""The same, and the one that holds none, but may have to stand for it."""
_TIME, _WANDB_TIME = "time", "_timestamp"
_ROUNDED = 100.0
"""Times that are all multiples of this many seconds were rounded, and tell no pace."""
NO_METRICS = frozenset((*STEPS, _TIME, _WANDB_TIME, "_runtime"))
"""The keys that place a line, and measure nothing."""
_PLANNED = {"current_steps": "total_steps"}
_LAST_OF_SWIFT = "last_model_checkpoint"
"""A key of the last line of ms-swift, which holds the state of its trainer, however the run ended."""
SUMMARY = "train_runtime"
"""A key of the line that transformers writes when a training is complete."""

_NUMBER = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE | re.ASCII)
_OF = re.compile(r"(\d+)/(\d+)", re.ASCII)
_MOST_KEYS = 10_000
"""The keys that are remembered."""


@cache
def _resolvers() -> dict[str, Resolver]:
    """Return a resolver of keys by framework. Made when the first log is read, not on import."""
    return {name: Resolver(CATALOG, framework=FRAMEWORKS.get(name)) for name in (TRL, *FRAMEWORKS)}


@lru_cache(maxsize=10_000)
def is_known(key: str, framework: str = "") -> bool:
    """Return True if the catalog has ``key`` for some algorithm of ``framework``, by default of any."""
    asked = (_resolvers()[framework],) if framework else _resolvers().values()
    return any(resolver.resolve(key) or resolver.as_logged(key) for resolver in asked)


def is_number(value: object) -> bool:
    """Return True for a text that is a number, which NaN and the infinities are too."""
    return isinstance(value, str) and bool(_NUMBER.fullmatch(value.strip()))


def placed(logs: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, float] | None:
    """Return the first of ``keys`` that ``logs`` have a number for, and it; a text may be ``10/100``."""
    for key in keys:
        value = logs.get(key)
        if isinstance(value, str):
            value = _value(value.partition("/")[0])
        if isinstance(value, (int, float)) and isfinite(value):
            return key, float(value)
    return None


def is_training(logs: Mapping[str, Any]) -> bool:
    """Return True for a log line of a step; False for one of an evaluation or of the whole training."""
    return SUMMARY not in logs and not evaluation_prefix(tuple(logs))


def opened(line: dict[str, Any]) -> dict[str, Any]:
    """Return ``line`` without nesting, as that of verl's logger ``file``: ``{"step": 1, "data": {...}}``.

    A key that is known stays what it is, as those of legacy PPO in ``{"ppo_stats": {...}}``; another one is put below
    the key of its object.
    """
    if "event" in line or not any(type(value) is dict for value in line.values()):
        return line
    flat: dict[str, Any] = {}
    for outer, value in line.items():
        if type(value) is dict:
            alone = outer == "data" and line.keys() - {"data"} <= NO_METRICS
            flat |= {key if alone or is_known(key) else f"{outer}/{key}": inner for key, inner in opened(value).items()}
    return flat | {key: value for key, value in line.items() if type(value) is not dict}


class Dialect:
    """How the writer of one log names steps, times and keys, learned from the lines so far.

    A line without a step belongs to the line before, unless it is a log line of a step. If no line has a step, the
    progress bar tells them, provided that it does for each line; otherwise lines are counted.
    """

    def __init__(self) -> None:
        self.framework: Framework | None = None
        """The framework whose keys the lines have; None for TRL's."""
        self.algorithm = ""
        """The algorithm, if the framework tells it; empty if the keys have to."""
        self.planned: int | None = None
        """The number of planned steps; None while no line says it."""
        self._stepped = self._with_calls = self._with_lines = False
        self._barred: int | None = None
        """The number of planned steps on the progress bar that is believed; 0 for none, None while undecided."""
        self._other = 0
        self._step: object = 0
        self._interval = 1
        self._times: tuple[str, ...] = (_TIME,)
        self._keys: set[str] = set()
        self._over = False

    @property
    def counted(self) -> bool:
        """Return True if no line has a step of its own."""
        return self._with_lines and not self._stepped and not self._with_calls

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what has to be assumed."""
        return ("the log has no steps: its lines are counted",) if self.counted and not self._barred else ()

    def learn(self, lines: Sequence[Line]) -> None:
        """Learn from ``lines``, before they are translated."""
        logs = [opened(line.logs) for line in lines if _is_log(line.logs)]
        keys = {key for line in logs for key in line}
        self._with_lines |= bool(logs)
        self._stepped |= not keys.isdisjoint(OWN_STEPS)
        self._with_calls |= _CALLS in keys
        if _WANDB_TIME in keys and _WANDB_TIME not in self._times:
            times = [_value(line[_WANDB_TIME]) for line in logs if _WANDB_TIME in line]
            if any(isinstance(time, (int, float)) and time % _ROUNDED for time in times):
                self._times = (_TIME, _WANDB_TIME)
        if not keys <= self._keys and len(self._keys) < _MOST_KEYS:
            self._keys |= keys
            self.framework = written_by(self._keys)
            self.algorithm = "" if self.framework is None else family_of(self.framework, self._keys)
        if self.counted and self._barred is None:
            self._barred = _believed([line.bar for line in lines if _is_log(line.logs) and is_training(line.logs)])
        if self._barred:
            self.planned = self._barred

    def lines(self, line: Line) -> Iterator[Line]:
        """Yield ``line`` as TRL would have logged it; an evaluation in it becomes a line of its own."""
        if "event" in line.logs:
            yield line
            return
        if _LAST_OF_SWIFT in line.logs:
            # The last line of ms-swift follows an exception too, but then without a summary.
            reached = line.logs.get("global_step", self._step)
            whole = self.planned is None or not isinstance(reached, (int, float)) or reached >= self.planned
            yield Line(line.where, {"event": "state", "state": "finished" if self._over or whole else "failed"})
            return
        original = opened(line.logs)
        names = _renamed(tuple(original), TRL if self.framework is None else self.framework.name)
        logs = {names[key]: _value(value) for key, value in original.items() if key in names}
        step = self._step_of(original, line.bar)
        time = next((_value(original[key]) for key in self._times if key in original), None)
        head = {**({} if step is None else {"step": step}), **({} if time is None else {"time": time})}
        evaluated = {names[key] for key in names if key.startswith("eval/") and names[key] != key}
        training = {key: value for key, value in logs.items() if key not in evaluated}
        if training or not evaluated:
            self._over = SUMMARY in training
            yield Line(line.where, {**head, **training})
        if evaluated:
            yield Line(line.where, {**head, **{key: logs[key] for key in logs if key in evaluated}})

    def _step_of(self, line: Mapping[str, Any], bar: tuple[int, int] | None) -> object:
        """Return the step of a line; None if it lacks one although others have one."""
        key = next((key for key in (OWN_STEPS if self._stepped else (_CALLS,)) if line.get(key) is not None), None)
        if key is not None:
            value, planned = line[key], line.get(_PLANNED.get(key, ""))
            if isinstance(value, str) and (match := _OF.fullmatch(value.strip())):  # such as ``10/100``
                value, planned = int(match[1]), int(match[2])
            if isinstance(planned, int) and planned > 0:
                self.planned = planned
            self._step = _value(value)
            self.planned = bar[1] if bar is not None else self.planned
        elif self.counted:
            self._step = self._counted(bar) if is_training(line) else self._step
        elif is_training(line) and not any(key in line for key in STEPS):
            return None
        return self._step

    def _counted(self, bar: tuple[int, int] | None) -> int:
        """Return the next step if no line has one: that on a ``bar`` that is believed, else one interval on.

        Once a bar is believed, another one replaces it when it has come twice.
        """
        before = int(str(self._step))
        if self._barred and bar is not None:
            if bar[1] == self._other:
                self._barred = self.planned = self._other
            self._other = bar[1]
            if bar[1] == self._barred:
                self._interval = bar[0] - before if bar[0] > before else self._interval
                return bar[0]
        return before + self._interval


@lru_cache(maxsize=1000)
def _renamed(keys: tuple[str, ...], framework: str) -> dict[str, str]:
    """Return the keys of a line of ``framework`` that are metrics, with their names in TRL."""
    left_out = {total for own, total in _PLANNED.items() if own in keys}
    return {key: _plain(key, framework) for key in keys if key not in NO_METRICS and key not in left_out}


def _plain(key: str, framework: str) -> str:
    """Return ``key`` without the prefix that transformers adds for trackers: ``train/kl``, ``eval/reward``."""
    if is_known(key, framework):
        return key
    kind, _, rest = key.partition("/")
    name = {"train": rest, "eval": f"eval_{rest}"}.get(kind, key)
    return name if is_known(name, framework) else key


def _is_log(line: Mapping[str, Any]) -> bool:
    return "event" not in line and _LAST_OF_SWIFT not in line


def _believed(bars: Sequence[tuple[int, int] | None]) -> int | None:
    """Return the planned steps on the ``bars`` after log lines if they tell the step of every line, else 0.

    None while there is no line yet.
    """
    told = [bar for bar in bars if bar is not None]
    steps, totals = [bar[0] for bar in told], {bar[1] for bar in told}
    if not bars:
        return None
    rising = len(told) == len(bars) and all(a < b for a, b in pairwise(steps))
    return totals.pop() if rising and len(totals) == 1 and steps[0] > 0 else 0


def _value(value: object) -> object:
    return float(value) if isinstance(value, str) and is_number(value) else value
