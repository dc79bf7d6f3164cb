"""Translates the log lines of other writers into those of TRL: their steps, their keys, numbers as texts.

A key is translated only where unit and estimator are those of TRL's key, so that the same limits hold; every other key
stays as it is. Lines that carry an ``event`` are those of recorders, and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from rlexporter.catalog import CATALOG, GRPO, PPO
from rlexporter.recording.source import Line
from rlexporter.store.keys import Resolver

_STEPS = (
    ("step", "global_step"),
    ("train/global_step", "training/global_step", "trainer/global_step"),  # transformers, verl, Lightning
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

_VERL = {
    "reward": ("critic/score/mean", "critic/rewards/mean"),  # the second is after a KL penalty, where there is one
    "entropy": ("actor/entropy", "actor/entropy_loss"),  # older versions call it a loss; the sign is the same
    "policy_loss": ("actor/pg_loss",),
    "loss": ("actor/loss",),
    "ppo/policy/policykl": ("actor/ppo_kl",),  # k1, of the policy that sampled: not the distance from the reference
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("actor/lr",),
    "completions/mean_length": ("response_length/mean",),
    "completions/min_length": ("response_length/min",),
    "completions/max_length": ("response_length/max",),
    "completions/clipped_ratio": ("response_length/clip_ratio",),
    "tokens/queries_len_mean": ("prompt_length/mean",),
    "step_time": ("perf/time_per_step", "timing_s/step"),
    "epoch": ("training/epoch",),
}
_VERL_GROUPS = {
    "kl": ("actor/kl_loss",),  # k3 by default (kl_loss_type low_var_kl), a mean over tokens, as in GRPO
    "clip_ratio/region_mean": ("actor/pg_clipfrac",),
}
_VERL_CRITIC = {
    "kl": ("actor/reward_kl_penalty", "critic/kl"),  # k1 by default (kl_penalty kl), a mean over tokens
    "objective/kl_coef": ("actor/reward_kl_penalty_coeff", "critic/kl_coeff"),
    "policy/clipfrac_avg": ("actor/pg_clipfrac",),
    "ppo/policy/advantages_mean": ("critic/advantages/mean",),  # whitened, with a critic only
    "ppo/returns/mean": ("critic/returns/mean",),
    "ppo/val/mean": ("critic/values/mean",),
    "ppo/val/var_explained": ("critic/vf_explained_var",),
    "loss/value_avg": ("critic/vf_loss",),
    "val/clipfrac_avg": ("critic/vf_clipfrac",),
}
"""The keys of verl, by the key of TRL that each is; of several the first that a line has."""
_OF_VERL = frozenset(("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/grad_norm"))
_CRITIC = ("critic/vf_loss", "critic/values/mean", "critic/vf_explained_var")

_RESOLVER = Resolver(CATALOG)


@cache
def is_known(key: str) -> bool:
    """Return True if the catalogue has ``key`` for some algorithm."""
    return bool(_RESOLVER.resolve(key))


def is_number(value: object) -> bool:
    """Return True for a text that is a number, NaN and the infinities among them."""
    return isinstance(value, str) and bool(_NUMBER.fullmatch(value.strip()))


class Translation(NamedTuple):
    """The lines of a file in the words of TRL."""

    lines: list[Line]
    algorithm: str
    """The algorithm that is known by the writer; empty if the keys have to tell."""
    notes: tuple[str, ...]
    """What had to be assumed."""


def translated(lines: Iterable[Line]) -> Translation:
    """Return ``lines`` with the steps, times and keys that the reader knows."""
    found = [(where, line if "event" in line else _opened(line)) for where, line in lines]
    dialect = _Dialect([line for _, line in found if "event" not in line])
    made = [each for where, line in found for each in dialect.lines(where, line)]
    return Translation(made, dialect.algorithm, ("the file has no steps: its log lines are counted",) * dialect.counted)


def _opened(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line in what verl's logger ``file`` writes: ``{"step": 1, "data": {...}}``."""
    data = line.get("data")
    return {**data, **line} if isinstance(data, dict) and set(line) - {"data"} <= _NO_METRICS else line


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
        critic = bool(keys.intersection(_CRITIC))
        self._verl = {**_VERL, **(_VERL_CRITIC if critic else _VERL_GROUPS)}
        self.algorithm = "" if keys.isdisjoint(_OF_VERL) else PPO if critic else GRPO
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
        names = {key: _plain(key) for key in keys if key not in _NO_METRICS and key not in left_out}
        for name, sources in self._verl.items():
            source = next((each for each in sources if each in names), None)
            if source is not None and name not in names.values():
                names[source] = name
        return names


def _plain(key: str) -> str:
    """Return ``key`` without what transformers puts before it for trackers: ``train/kl``, ``eval/reward``."""
    if is_known(key):
        return key
    kind, _, rest = key.partition("/")
    name = {"train": rest, "eval": f"eval_{rest}"}.get(kind, key)
    return name if is_known(name) else key


def _number_in_step(value: object) -> object:
    """Return the number in a text that is one, or begins with one as ``10/100`` does; else ``value``."""
    if isinstance(value, str) and (match := _OF.fullmatch(value.strip())):
        return int(match[1])
    return _value(value)


def _value(value: object) -> object:
    return float(value) if isinstance(value, str) and is_number(value) else value
