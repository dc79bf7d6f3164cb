"""Planted runs: log lines and steps as trainers write them, healthy and then not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sin
from typing import Any

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.conditions.watch import Watch, watch
from rlexporter.config import parsers
from rlexporter.feed.feed import Feed
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Series
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.tensors import host

Line = dict[str, Any]
LABELS = {"run": "planted", "rank": "0"}
HEALTHY = 60
"""Steps before the fault; it begins in the next one."""


def wave(step: int) -> float:
    """Noise that is the same each time, between -1 and 1."""
    return sin(step * 1.7)


def grpo(step: int) -> Line:
    """A healthy line of GRPO or RLOO."""
    return {
        "reward": 1.0 + 0.004 * step + 0.05 * wave(step),
        "reward_std": 0.3 + 0.02 * wave(step),
        "frac_reward_zero_std": 0.0,
        "rewards/format/mean": 0.5 + 0.002 * step + 0.02 * wave(step),
        "rewards/format/std": 0.2,
        "rewards/answer/mean": 0.5 + 0.002 * step + 0.03 * wave(step),
        "rewards/answer/std": 0.2,
        "kl": 0.05 + 0.001 * step,
        "entropy": 0.9 + 0.02 * wave(step),
        "grad_norm": 1.0 + 0.3 * wave(step),
        "loss": 0.002,
        "learning_rate": 1e-5,
        "clip_ratio/region_mean": 0.01,
        "completions/mean_length": 100.0 + wave(step),
        "completions/clipped_ratio": 0.02,
    }


def ppo(step: int) -> Line:
    """A healthy line of modern PPO, of 64 episodes a step."""
    return {
        "objective/kl": 0.5 + 0.02 * step,
        "objective/scores": 1.0 + 0.004 * step + 0.05 * wave(step),
        "policy/approxkl_avg": 0.01,
        "policy/clipfrac_avg": 0.05,
        "policy/entropy_avg": 0.9,
        "loss/policy_avg": -0.01,
        "loss/value_avg": 0.1 + 0.02 * wave(step),
        "val/clipfrac_avg": 0.05,
        "val/ratio": 1.0,
        "val/num_eos_tokens": 62,
        "lr": 1e-5,
        "episode": 64 * step,
    }


def legacy(step: int) -> Line:
    """A healthy line of legacy PPO."""
    return {
        "objective/kl": 1.0 + 0.02 * step,
        "objective/kl_coef": 0.2,
        "env/reward_mean": 1.0 + 0.004 * step + 0.05 * wave(step),
        "env/reward_std": 0.3,
        "ppo/policy/approxkl": 0.01,
        "ppo/policy/clipfrac": 0.05,
        "ppo/policy/entropy": 0.9,
        "ppo/policy/advantages_mean": 0.001,
        "ppo/loss/value": 0.1 + 0.02 * wave(step),
        "ppo/loss/policy": -0.01,
        "ppo/val/clipfrac": 0.05,
        "ppo/val/var_explained": -1.0 + 0.05 * wave(step),
        "tokens/responses_len_mean": 20.0,
        "tokens/responses_len_std": 4.0,
    }


LINES: Mapping[str, Callable[[int], Line]] = {"grpo": grpo, "rloo": grpo, "ppo": ppo, "ppo-legacy": legacy}


def counted(seen: Mapping[str, Any]) -> dict[Series, Histogram]:
    """What the taps counted of these tensors, by the name of their metric and its labels: ``rl_reward_dist/answer``."""
    found = {}
    for name, numbers in seen.items():
        series, *labels = name.split("/")
        metric = NAMED[series]
        found[Series(metric, tuple(labels))] = host.count(numbers, metric.bounds)
    return found


class Planted:
    """One run whose log lines are made here. ``limits``: as a person sets them."""

    def __init__(self, algorithm: str, limits: object = None, **info: str) -> None:
        self.algorithm = algorithm
        self.clock = 1000.0
        self.watch: Watch = watch(parsers.thresholds(limits) if limits else None)
        self.feed = Feed(CATALOG, clock=lambda: self.clock, watch=self.watch)
        self.feed.begin(RunFacts(algorithm=algorithm, info=info), LABELS)
        self.step = 0

    def begin(self, step: int = 0, **facts: Any) -> None:
        """Another training in the same process; one that goes on from a checkpoint of this step."""
        self.feed.begin(RunFacts(algorithm=self.algorithm, step=step, **facts), LABELS)
        self.step = step

    def healthy(self, steps: int = HEALTHY) -> Planted:
        """So many healthy steps."""
        for _ in range(steps):
            self.line({})
        return self

    def line(self, changes: Line, *, seconds: float = 2.0, seen: Mapping[str, Any] | None = None) -> None:
        """One step. ``changes``: what differs from a healthy line, ... where the key is missing; ``seen``: tensors."""
        self.step += 1
        self.clock += seconds
        line = {**LINES[self.algorithm](self.step), **changes}
        logs = {key: value for key, value in line.items() if value is not ...}
        update = None if seen is None else StepUpdate(step=self.step, seen=counted(seen))
        for series in update.seen if update else ():
            self.feed.tap(series.metric)
        self.feed.record(logs, self.step, update)

    def late(self, seen: Mapping[str, Any], step: int | None = None) -> None:
        """Tensors of a step (the last one) that are counted after its line, as those of a GPU are."""
        self.feed.absorb(StepUpdate(step=self.step if step is None else step, seen=counted(seen)))

    def fail(self) -> None:
        """The process fails."""
        self.feed.enter(RunState.FAILED, "RuntimeError")

    def signal(self, name: str) -> list[float]:
        """All values of a signal."""
        return list(self.watch._judge.past(name).values)

    def value(self, series: str, condition: str, severity: str = "critical") -> float | None:
        """What is served of a limit of a condition."""
        return self.snapshot.value(series, condition=condition, severity=severity)

    @property
    def began(self) -> dict[tuple[str, str], int]:
        """The step in which each condition began first, by condition and severity."""
        return {key: step for key, (step, _) in self.watch.first.items()}

    @property
    def snapshot(self) -> Snapshot:
        """What is served now."""
        return self.feed.snapshot
