"""Documents as `/api/status` and `/api/history` give them, of runs in every state that the page has to show."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from math import nan
from typing import Any

from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts
from rlexporter.status import document
from rlexporter.status.history import History
from tests.conditions.planted import Line, Planted

Json = dict[str, Any]
STEPS, PLANNED = 412, 600
NAME = "demo-grpo-11897"
HOSTILE = "<script>alert(1)</script>\u202eevil\u200f<img src=x onerror=alert(2)>"
"""A name with markup and marks that turn the direction of text around."""
_TRAINERS = {"grpo": "GRPOTrainer", "ppo": "PPOTrainer"}

_SEEN = {
    "rl_reward_dist": [0.5, 1.2, 1.3, 2.0],
    "rl_policy_ratio_dist": [0.9, 1.0, 1.1],
    "rl_advantage_dist": [-1.2, -0.1, 0.3, 1.0],
    "rl_completion_length_dist": [9.0, 11.0, 14.0],
}
"""Tensors of every step: on axes with and without numbers below 0."""

Fault = Callable[[int], Line]
"""What differs from a healthy line in a step, ... where a key is missing."""


def _well(step: int) -> Line:
    return {"step_time": 0.2}


def played(
    steps: int = STEPS,
    fault: Fault = _well,
    algorithm: str = "grpo",
    *,
    state: RunState = RunState.RUNNING,
    exception: str = "",
    attempt: int = 1,
    settings: Mapping[str, float] | None = None,
) -> Json:
    """The documents of a run after so many steps, at the moment at which it entered ``state``."""
    run, history = Planted(algorithm), History()
    info = {"trainer": _TRAINERS[algorithm], "model": "Qwen2-0.5B-Instruct", "attempt": str(attempt), "trl": "1.16.0"}
    hyperparameters = {"learning_rate": 1e-6, "beta": 0.04, **(settings or {})}
    facts = RunFacts(algorithm=algorithm, step=0, steps_planned=PLANNED, info=info, hyperparameters=hyperparameters)
    run.clock = 1_790_000_000.0
    run.feed.begin(facts, {"run": NAME, "rank": "0", "team": "alignment"})
    if steps:
        run.feed.enter(RunState.RUNNING)
    for step in range(1, steps + 1):
        run.line(fault(step), seen=_SEEN)
        if step % 50 == 0:
            run.feed.saved(step)
        history.see(run.feed.snapshot)
    run.feed.enter(state, exception)
    snapshot = run.feed.snapshot
    return document.kept(snapshot, history, run.clock)


@cache
def _healthy() -> Json:
    return played()


@cache
def _broken() -> Json:
    def fault(step: int) -> Line:
        line: Line = {"objective/kl": 40.0} if 212 <= step < 216 else {}
        if step >= 380:
            line["loss/value_avg"] = nan
        if step >= 381:
            line["loss/policy_avg"] = nan
        return line

    return played(fault=fault, algorithm="ppo")


def healthy() -> Json:
    """A GRPO run that goes well."""
    return copy.deepcopy(_healthy())


def broken() -> Json:
    """PPO whose value loss is NaN, with another loss as a symptom and an older alert that is over."""
    return copy.deepcopy(_broken())


def without_kl() -> Json:
    """No KL in this run: `beta` is 0."""
    return played(fault=lambda step: {"kl": ...}, settings={"beta": 0.0})


def many_rewards() -> Json:
    """64 reward functions, some with long names, one that gives nothing, one that is not finite."""
    names = [f"reward_{i:02d}_{'of_a_long_name_' * (i % 4)}check" for i in range(64)]
    means = {f"rewards/{name}/mean": 0.3 * (i % 5) - 0.6 for i, name in enumerate(names) if i != 5}
    spreads = {f"rewards/{name}/std": 0.2 for name in names}
    return played(60, lambda step: {**means, **spreads, f"rewards/{names[7]}/mean": nan if step == 60 else 0.0})


def hostile() -> Json:
    """Names that are markup, 10 kB long, or turn text around."""
    data = broken()
    status = data["status"]
    long = "x" * 10_000
    status["run"].update(name=HOSTILE, model=long, trainer=HOSTILE, labels={HOSTILE: long}, exception=HOSTILE)
    status["run"]["info"] = {HOSTILE: HOSTILE, "model": long}
    status["verdict"].update(text=f"{HOSTILE} `<b>code</b>` {HOSTILE}", runbook="javascript:alert(4)")
    status["conditions"][0].update(summary=HOSTILE, alert=HOSTILE, runbook="javascript:alert(3)")
    status["rewards"] = [{"function": each, "mean": 1.0, "std": 0.0} for each in (HOSTILE, long, "</script><b>")]
    status["series"].append({**status["series"][0], "labels": {"reward_function": HOSTILE}})
    status["hyperparameters"] = {HOSTILE: 1.0}
    status["not_judged"].append({"condition": HOSTILE, "reason": HOSTILE, "cause": "error"})
    status["nonfinite"].append({"metric": HOSTILE, "kind": HOSTILE, "count": 1})
    status["links"] = {**status["links"], "docs": "javascript:alert(5)"}
    return data


RUNS: dict[str, Callable[[], Json]] = {
    "healthy": healthy,
    "broken": broken,
    "finished": lambda: played(PLANNED, state=RunState.FINISHED),
    "failed": lambda: played(60, state=RunState.FAILED, exception="RuntimeError"),
    "resumed": lambda: played(60, attempt=2),
    "without_kl": without_kl,
    "many_rewards": many_rewards,
    "hostile": hostile,
    "starting": lambda: played(1),
    "empty": lambda: played(0, state=RunState.STARTING),
}
