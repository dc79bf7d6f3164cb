"""Runs of every kind for a Prometheus to scrape: replays of real ones, planted ones, healthy and broken."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rlexporter import Exporter, Rank
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.logs import reader
from rlexporter.logs.playback import feed
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.tensors import host
from tests.conditions.planted import LINES
from tests.conftest import DATA
from tests.dashboards.curves import still
from tests.dashboards.large_runs import Changes, agents, lines
from tests.logs.files import flat

RUNS = DATA / "runs"
REPLAYED = {
    "grpo": "grpo-healthy_multi-0",
    "rloo": "rloo-healthy_multi-0",
    "ppo": "ppo-healthy_accum-0",
    "ppo-legacy": "ppo_legacy-healthy_wandb_types-0",
    "nan": "ppo-value_nan-0",
}
LOGS = {f"{name}-log": file for name, file in REPLAYED.items() if name != "nan"}
"""The same runs by their log lines alone: nothing looks at their tensors."""
LARGE: dict[str, Changes] = {
    "verl-v1": {},
    "prime-rl": agents(coder=still(0.5), solver=still(0.4)),
    "slime": {},
    "nemo-rl": {},
}
"""Logs of large runs by their frameworks, each with what differs from the usual."""
ALL, BROKEN, RANKS, DRIFTS = "all", "broken", "ranks", "drifts"
"""A run with everything that can be served, one with conditions that begin, one of two ranks, and one whose KL has run
away and which goes on.
"""
KEYED = {ALL: "grpo", "values": "ppo-legacy", "preference": "dpo", "online": "online-dpo", "async": "async-grpo"}
"""Runs that log every key that their algorithm has."""
SHARED = "shared"
"""The name of two runs of two teams: that of team llm is healthy, and a reward function of the other one is dead."""
OWNED = {
    BROKEN: {"team": "llm", "user": "ada"},
    f"{SHARED}/llm": {"team": "llm"},
    f"{SHARED}/vision": {"team": "vision"},
}
"""Runs with labels that say whose they are."""
TICKS = 7
PATIENT = {"run_stalled": 36_000.0}
"""On a busy machine minutes lie between two ticks."""
_WARM = 60
"""Steps before anybody looks: limits that are measured with the run's own past are known then."""

_EVALUATED = ("eval_reward", "eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")

Tick = Callable[[int], None]


def names() -> list[str]:
    """Every run."""
    return [*dict.fromkeys(each.partition("/")[0] for each in _each())]


def _each() -> list[str]:
    return [*REPLAYED, *LOGS, *LARGE, *KEYED, *OWNED, RANKS, DRIFTS]


@contextlib.contextmanager
def running() -> Iterator[tuple[list[str], list[Tick]]]:
    """The targets to scrape, and what lets each run go on a little."""
    with contextlib.ExitStack() as stack:
        exporters = {
            name: Exporter(
                run=name.partition("/")[0],
                algorithm=_algorithm(name),
                port=0,
                labels=OWNED.get(name),
                thresholds=PATIENT,
            )
            for name in _each()
        }
        for exporter in exporters.values():
            stack.callback(exporter.close)
            exporter.start()
        ticks = [_replay(exporters[name], RUNS / f"{file}.jsonl") for name, file in REPLAYED.items()]
        ticks += [_replay(exporters[name], RUNS / f"{file}.jsonl", tensors=False) for name, file in LOGS.items()]
        folder = Path(stack.enter_context(TemporaryDirectory()))
        ticks += [
            _replay(exporters[name], flat(folder / f"{name}.jsonl", *lines(name, own))) for name, own in LARGE.items()
        ]
        ticks += [partial(_keyed, exporters[name], algorithm) for name, algorithm in KEYED.items()]
        ticks.append(partial(_drift, exporters[DRIFTS]))
        ticks += [partial(_break, exporters[BROKEN]), partial(_healthy, exporters[RANKS])]
        ticks += [
            partial(_reward, exporters[f"{SHARED}/llm"], 10**9),
            partial(_reward, exporters[f"{SHARED}/vision"], 60),
        ]
        second = Exporter(run=RANKS, algorithm="grpo", port=0, rank=Rank(1, world_size=2), ranks="all").start()
        stack.callback(second.close)
        ticks.append(partial(_second_rank, second))
        yield [f"127.0.0.1:{each.port}" for each in (*exporters.values(), second)], ticks


def _algorithm(name: str) -> str:
    own = {"nan": "ppo", **KEYED}
    name = name.removesuffix("-log")
    return own.get(name, name if name in REPLAYED else "grpo")


def _replay(exporter: Exporter, path: Path, *, tensors: bool = True) -> Tick:
    found = reader.read(path)
    exporter.run.prepare(found.facts)
    exporter._run.enter(RunState.RUNNING)
    share = -(-len(found.events) // TICKS)

    def tick(number: int) -> None:
        for event in found.events[number * share : (number + 1) * share]:
            if event.update is not None and not tensors:
                event = replace(event, update=replace(event.update, seen={}, values={}))
            if event.state is None:
                feed(exporter._run.feed, replace(event, time=time.time()))
            elif event.state.over:
                exporter._run.enter(event.state, event.exception)

    return tick


def _healthy(exporter: Exporter, number: int) -> None:
    if number == 0:
        exporter._run.enter(RunState.RUNNING)
    for step in (2 * number + 1, 2 * number + 2):
        exporter.run.sink.log(LINES["grpo"](step), step=step, update=StepUpdate(step=step, duration=0.4))
        exporter._run.feed.absorb(StepUpdate(step=step, phases={"rollout": 0.3, "update": 0.1}))


def _keyed(exporter: Exporter, algorithm: str, number: int) -> None:
    if number == 0:
        exporter.run.begin(RunFacts(algorithm=algorithm, step=0, steps_planned=200, hyperparameters={"beta": 0.1}))
        for step in range(1, _WARM + 1):
            exporter.log(_line(algorithm, step), step=step)
    for step in (_WARM + 2 * number + 1, _WARM + 2 * number + 2):
        exporter.run.sink.undefined("rl_reward_function_dist", 1)
        phases = {"rollout": 0.2, "reward": 0.1, "update": 0.1, "save": 0.01, "eval": 0.01}
        exporter.run.sink.log(_line(algorithm, step), step=step, update=StepUpdate(step=step, duration=0.4))
        exporter._run.feed.absorb(StepUpdate(step=step, phases=phases))
        exporter.log(dict.fromkeys(_EVALUATED, 1.0), step=step)
        if algorithm == KEYED[ALL]:
            _everything(exporter, step)


def _line(algorithm: str, step: int) -> dict[str, Any]:
    keys = [
        (re.sub(r"{\w+}", "format", key.name), metric.series)
        for metric in CATALOG
        for key in metric.keys
        if algorithm in key.algorithms and metric.kind is not Kind.HISTOGRAM and not key.name.startswith("eval_")
    ]
    return {name: 100.0 * step if series.endswith("_seen") else 0.5 + 0.01 * step for name, series in keys}


def _everything(exporter: Exporter, step: int) -> None:
    """What is not logged: every histogram, what only taps see, checkpoints, a phase that is open, lost signals."""
    values = np.random.default_rng(step).normal(1.0, 0.5, 64)
    for metric in CATALOG:
        if metric.kind is Kind.HISTOGRAM and metric.series != "rl_step_duration_seconds":
            exporter.observe(metric.series, np.abs(values), **dict.fromkeys(metric.labels, "format"))
    exporter.observe("advantage", np.array([nan, 1.0]))
    names = "weight_norm weight_changed_fraction ref_dropout ref_logprob_noise".split()
    names += "advantage_reward_correlation first_use_log_ratio loss_mask_wrong_fraction weight_update_size".split()
    names += "reward_zero_fraction optimizer_missing_fraction optimizer_updates completion_copied_fraction".split()
    names += ["completion_copied_expected_fraction", "gradient_zero_fraction"]
    names += "prompts_repeated_fraction prompt_end_changed_fraction ref_weight_changed_fraction".split()
    tapped = [Series(NAMED[f"rl_{name}"]) for name in names]
    corrected = sorted(metric.series for metric in CATALOG if metric.corrected)
    tapped += [Series(NAMED["rl_corrected_mean"], (name,)) for name in corrected]
    seen = {series: host.count([1.0], ()) for series in tapped}
    exporter._run.feed.absorb(StepUpdate(step=step, seen=seen))
    exporter.log({"a key of my own": 1.0}, step=step)
    exporter.run.sink.signal("kl", "beta is 0")
    exporter.run.sink.signal("entropy", "AttributeError: no logits", error=True)
    exporter._run.feed.under_way("rollout")
    exporter.run.sink.saved(step)
    exporter._run.errors.add("state", OSError("no space is left"))


def _break(exporter: Exporter, number: int) -> None:
    """Sixty healthy steps before anybody looks; then the KL runs away, and a loss is NaN."""
    if number == 0:
        exporter.run.begin(RunFacts(algorithm="grpo", step=0, gpus=8))
        for step in range(1, 61):
            exporter.log(LINES["grpo"](step), step=step)
        exporter.run.sink.saved(50)
        return
    for step in (58 + 3 * number, 59 + 3 * number, 60 + 3 * number):
        exporter.log({**LINES["grpo"](step), "kl": 9.0, "loss": nan}, step=step)
    if number == TICKS - 1:
        exporter.end(RuntimeError("probability tensor contains nan"))


def _drift(exporter: Exporter, number: int) -> None:
    if number == 0:
        exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    for step in range(1, _WARM + 1) if number == 0 else range(_WARM + 3 * number - 2, _WARM + 3 * number + 1):
        exporter.log({**LINES["grpo"](step), **({"kl": 9.0} if step > _WARM else {})}, step=step)


def _reward(exporter: Exporter, dies: int, number: int) -> None:
    """Sixty healthy steps before anybody looks; one of two reward functions is dead after step ``dies``."""
    if number == 0:
        exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    for step in range(1, _WARM + 1) if number == 0 else range(_WARM + 3 * number - 2, _WARM + 3 * number + 1):
        line, dead = LINES["grpo"](step), step > dies
        line |= {"rewards/letter_reward/mean": 0.0 if dead else 0.4 + 0.02 * (step % 5)}
        exporter.log({**line, "rewards/letter_reward/std": 0.0 if dead else 0.3}, step=step)


def _second_rank(exporter: Exporter, number: int) -> None:
    for step in (2 * number + 1, 2 * number + 2):
        exporter.run.sink.observe("rl_loss_dist", [nan if number == 3 else 0.5])
        exporter.run.sink.advance(StepUpdate(step=step, duration=0.6))
        exporter._run.feed.absorb(StepUpdate(step=step, seen=_seen(step), phases={"rollout": 0.5, "update": 0.1}))


def _seen(step: int) -> dict[Any, Any]:
    metric = NAMED["rl_value_dist"]
    return {Series(metric): host.count(np.array([float(step), -1.0]), metric.bounds)}


def play(ticks: Sequence[Tick], seen: Callable[[float], object] = bool) -> None:
    """A tick a second, or slower: each is ``seen`` before the next one begins, however busy the machine is."""
    for number in range(TICKS):
        until = time.monotonic() + 1.0
        for tick in ticks:
            tick(number)
        seen(time.time())
        time.sleep(max(0.0, until - time.monotonic()))
