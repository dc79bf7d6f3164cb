"""Documents as `/api/status` and `/api/history` give them, of runs in every state that the page has to show."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from rlexporter.catalog import CONDITION_NAMED, NAMED, RUNBOOKS

Json = dict[str, Any]
NOW = 1_790_000_000.0
HOSTILE = "<script>alert(1)</script>\u202eevil\u200f<img src=x onerror=alert(2)>"
"""A name with markup and marks that turn the direction of text around."""

Value = float | str | None


def word(value: float | None) -> Value:
    """A number as JSON has it: those that are not finite are words."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def curve(series: str, values: Sequence[float], labels: Json | None = None, first: int = 1) -> Json:
    """The curve of one series, a value a step."""
    steps = list(range(first, first + len(values)))
    return {"series": series, "labels": labels or {}, "steps": steps, "values": [word(each) for each in values]}


def noisy(begin: float, end: float, noise: float, count: int, seed: int) -> list[float]:
    """A curve that goes from one value to another, as runs do: fast first, then slowly."""
    rng = random.Random(seed)
    level = [begin + (end - begin) * (1 - math.exp(-4 * i / count)) for i in range(count)]
    return [each + rng.gauss(0, noise) for each in level]


def main(series: str, name: str, value: float | None, **limits: float) -> Json:
    """One series of a card, with its limits by severity."""
    metric = NAMED[series]
    return {
        "series": series,
        "labels": {},
        "name": name,
        "kind": metric.kind.value,
        "value": word(value),
        "unit": metric.unit,
        "threshold": next(iter(limits.values()), None),
        "healthy": f"{metric.healthy.low} to {metric.healthy.high}" if metric.healthy else "",
        "limits": [
            {"condition": f"{series}_high", "severity": severity, "threshold": limit, "below": False}
            for severity, limit in limits.items()
        ],
    }


def row(series: str, value: float | None, step: int, labels: Json | None = None) -> Json:
    """One series of the table."""
    metric = NAMED[series]
    return {
        "name": series,
        "labels": labels or {},
        "key": metric.keys[0].name if metric.keys else "",
        "kind": metric.kind.value,
        "unit": metric.unit,
        "level": metric.level.value,
        "help": metric.help,
        "healthy": f"{metric.healthy.low} to {metric.healthy.high}" if metric.healthy else "",
        "reading": metric.reading,
        "value": word(value),
        "step": step,
    }


def condition(name: str, severity: str, step: int, value: float, limit: float | None, **changes: Any) -> Json:
    """A condition of the catalogue that began in this step."""
    found = CONDITION_NAMED[name]
    return {
        "name": name,
        "severity": severity,
        "alert": found.alert,
        "summary": found.summary,
        "meaning": found.meaning,
        "causes": list(found.causes),
        "actions": list(found.remedies),
        "below": found.below,
        "signal_unit": "",
        "holds": True,
        "symptom": False,
        "count": 1,
        "step": step,
        "timestamp": NOW - 300,
        "value": word(value),
        "threshold": limit,
        "runbook": f"{RUNBOOKS}/{found.alert}.md",
        **changes,
    }


def distribution(series: str, seed: int, centre: float = 0.0, spread: float = 1.0) -> Json:
    """A distribution with the buckets of the catalogue, the run's and a narrower one of the last steps."""
    rng = random.Random(seed)
    edges = [*NAMED[series].bounds, math.inf]

    def counted(count: int, wide: float) -> list[int]:
        values = [rng.gauss(centre, wide) for _ in range(count)]
        if NAMED[series].bounds[0] >= 0:
            values = [abs(each) for each in values]
        bounds = [-math.inf, *edges]
        return [sum(low < value <= high for value in values) for low, high in zip(bounds, edges, strict=False)]

    counts = counted(4000, spread)
    return {
        "series": series,
        "labels": {},
        "unit": NAMED[series].unit,
        "help": NAMED[series].help,
        "edges": [word(each) for each in edges],
        "counts": counts,
        "recent": counted(600, spread * 0.6),
        "recent_steps": 50,
        "count": sum(counts),
        "sum": centre * sum(counts),
        "nonfinite": None,
    }


def healthy() -> Json:
    """A GRPO run that goes well."""
    steps = 412
    reward = noisy(0.1, 1.31, 0.09, steps, 1)
    series = {
        "rl_reward_mean": reward,
        "rl_reward_std": noisy(0.5, 0.31, 0.05, steps, 2),
        "rl_completion_length_mean": noisy(11, 10.6, 0.4, steps, 3),
        "rl_kl_per_token": [abs(each) for each in noisy(0, 0.061, 0.008, steps, 4)],
        "rl_entropy_per_token": noisy(2.2, 0.92, 0.05, steps, 5),
        "rl_grad_norm": [abs(each) for each in noisy(2.0, 1.1, 0.3, steps, 6)],
        "rl_clip_ratio_region_mean": [abs(each) for each in noisy(0, 0.004, 0.003, steps, 7)],
        "rl_step_time_seconds": [abs(each) for each in noisy(0.2, 0.15, 0.02, steps, 9)],
        "rl_learning_rate": [1e-6 * (1 - i / 600) for i in range(steps)],
    }
    last = {name: values[-1] for name, values in series.items()}
    functions = {"letter_reward": 0.58, "length_reward": 0.41, "format_reward": 0.32}
    rows = [row(name, value, steps) for name, value in last.items()]
    rows += [row("rl_reward_function_mean", v, steps, {"reward_function": name}) for name, v in functions.items()]
    rows += [row(name, 0.0, steps, {"metric": "rl_loss", "kind": "nan"}) for name in ("rl_nonfinite_values_total",)]
    status = {
        "version": 1,
        "language": "en",
        "time": NOW,
        "run": {
            "name": "demo-grpo-11897",
            "rank": "0",
            "labels": {"team": "alignment"},
            "algorithm": "grpo",
            "trainer": "GRPOTrainer",
            "model": "Qwen2-0.5B-Instruct",
            "state": "running",
            "exception": "",
            "attempt": 1,
            "started": NOW - 3600,
            "step": steps,
            "steps_planned": 600,
            "steps_per_second": 6.4,
            "seconds_left": 29.4,
            "last_step_seconds_ago": 0.2,
            "stall_after_seconds": 60.0,
            "last_checkpoint_step": 400,
            "last_good_checkpoint_step": 400,
            "info": {"algorithm": "grpo", "trainer": "GRPOTrainer", "trl": "1.16.0", "torch": "2.13.0", "attempt": "1"},
        },
        "verdict": {
            "word": "fine",
            "code": "ok",
            "conditions": [],
            "actions": [],
            "runbook": "",
            "text": "Nothing is wrong with this run at step 412: 41 conditions are judged, and none holds.",
        },
        "conditions": [],
        "cards": [
            {
                "question": "learning",
                "title": "Is it learning?",
                "state": "fine",
                "main": [
                    main("rl_reward_mean", "reward", last["rl_reward_mean"]),
                    main("rl_reward_std", "spread of reward", last["rl_reward_std"], warning=0.05),
                    main("rl_completion_length_mean", "length", last["rl_completion_length_mean"]),
                ],
            },
            {
                "question": "stable",
                "title": "Is it stable?",
                "state": "fine",
                "main": [
                    main("rl_kl_per_token", "KL", last["rl_kl_per_token"], warning=0.1, critical=0.35),
                    main("rl_entropy_per_token", "entropy", last["rl_entropy_per_token"], warning=0.2),
                    main("rl_grad_norm", "gradient norm", last["rl_grad_norm"], critical=21.4),
                    main("rl_clip_ratio_region_mean", "clipped", last["rl_clip_ratio_region_mean"], warning=0.3),
                ],
            },
            {
                "question": "fast",
                "title": "Is it fast?",
                "state": "fine",
                "main": [main("rl_step_time_seconds", "step time", last["rl_step_time_seconds"], warning=0.9)],
            },
            {
                "question": "hidden",
                "title": "Is anything hidden?",
                "state": "fine",
                "main": [main("rl_nonfinite_values_total", "values not finite", 0.0)],
            },
        ],
        "rewards": [{"function": name, "mean": v, "std": v / 3} for name, v in functions.items()],
        "distributions": [
            distribution("rl_reward_dist", 1, 1.2, 0.8),
            distribution("rl_policy_ratio_dist", 2, 1.0, 0.06),
            distribution("rl_advantage_dist", 3, 0.0, 1.0),
            distribution("rl_completion_length_dist", 4, 11.0, 5.0),
        ],
        "not_judged": [
            {"condition": "value_loss_high", "reason": "GRPO has no value function", "cause": "configuration"},
            {"condition": "explained_variance_fall", "reason": "GRPO has no value function", "cause": "configuration"},
            {"condition": "sampler_differs", "reason": "no sampler beside the trainer", "cause": "configuration"},
        ],
        "unavailable": [{"signal": "value", "reason": "GRPO has no value function", "cause": "configuration"}],
        "nonfinite": [],
        "undefined": [],
        "series": rows,
        "hyperparameters": {
            "learning_rate": 1e-6,
            "beta": 0.04,
            "num_generations": 8.0,
            "max_completion_length": 256.0,
        },
        "links": {
            "metrics": "/metrics",
            "status": "/api/status",
            "history": "/api/history",
            "docs": "https://example.org/docs",
            "runbooks": RUNBOOKS,
        },
    }
    return {"status": status, "history": {"version": 1, "curves": [curve(name, v) for name, v in series.items()]}}


def changed(**run: Any) -> Json:
    """The healthy run with other facts."""
    data = healthy()
    data["status"]["run"].update(run)
    return data


def broken() -> Json:
    """PPO whose value loss is NaN, with the gradient as a symptom and an older warning that is over."""
    data = healthy()
    status = data["status"]
    status["run"].update(name="ppo-summarize-3", algorithm="ppo", trainer="PPOTrainer", last_good_checkpoint_step=350)
    for name, begin in (("rl_value_loss", 380), ("rl_grad_norm", 381)):
        values = [*noisy(1.9, 0.6, 0.1, begin - 1, 8), *([math.nan] * (413 - begin))]
        data["history"]["curves"] = [each for each in data["history"]["curves"] if each["series"] != name]
        data["history"]["curves"].append(curve(name, values))
    found = condition("nonfinite_value_loss", "critical", 380, math.nan, None, signal_unit="")
    symptom = condition("nonfinite_grad", "critical", 381, math.nan, None, symptom=True)
    over = condition("kl_high", "warning", 212, 0.1347, 0.1, holds=False, count=3, signal_unit="nats")
    status["conditions"] = [found, over, symptom]
    status["verdict"] = {
        "word": "act",
        "code": "condition",
        "conditions": [found["name"]],
        "runbook": found["runbook"],
        "text": "Value loss is NaN since step 380. The last good checkpoint is 350.",
        "actions": found["actions"],
    }
    status["nonfinite"] = [{"metric": "rl_value_loss", "kind": "nan", "count": 33}]
    stable = status["cards"][1]
    stable["state"] = "act"
    stable["main"] = [main("rl_value_loss", "value loss", math.nan, critical=3.1), *stable["main"][:3]]
    stable["main"][3]["value"] = "NaN"
    status["cards"][3].update(state="act", main=[main("rl_nonfinite_values_total", "values not finite", 33.0)])
    status["series"].append(row("rl_value_loss", math.nan, 412))
    return data


def over(state: str, word: str, text: str, **facts: Any) -> Json:
    """A run that has ended."""
    data = changed(state=state, step=600, steps_per_second=None, seconds_left=None, **facts)
    data["status"]["verdict"].update(word=word, code=state, text=text)
    return data


def without_kl() -> Json:
    """No KL in this run: `beta` is 0."""
    data = healthy()
    stable = data["status"]["cards"][1]
    stable["main"] = stable["main"][1:]
    reason = "`beta` is 0: there is no reference model"
    names = ("kl_high", "kl_jump", "kl_negative", "reward_hacking")
    data["status"]["not_judged"] += [{"condition": each, "reason": reason, "cause": "configuration"} for each in names]
    return data


def many_rewards() -> Json:
    """64 reward functions, some with long names, one that gives nothing."""
    data = healthy()
    rng = random.Random(64)
    names = [f"reward_{i:02d}_{'of_a_long_name_' * (i % 4)}check" for i in range(64)]
    rewards = [{"function": name, "mean": rng.gauss(0.3, 0.6), "std": abs(rng.gauss(0, 0.2))} for name in names]
    rewards[5].update(mean=None, std=None)
    rewards[7].update(mean="NaN", std="NaN")
    data["status"]["rewards"] = rewards
    data["status"]["series"] += [
        {**row("rl_reward_function_mean", 0.0, 412, {"reward_function": each["function"]}), "value": each["mean"]}
        for each in rewards
    ]
    return data


def hostile() -> Json:
    """Names that are markup, 10 kB long, or turn text around."""
    data = broken()
    status = data["status"]
    long = "x" * 10_000
    status["run"].update(name=HOSTILE, model=long, trainer=HOSTILE, labels={HOSTILE: long}, exception=HOSTILE)
    status["run"]["info"] = {HOSTILE: HOSTILE, "model": long}
    status["verdict"]["text"] = f"{HOSTILE} `<b>code</b>` {HOSTILE}"
    status["conditions"][0].update(summary=HOSTILE, alert=HOSTILE, runbook="javascript:alert(3)")
    status["verdict"]["runbook"] = "javascript:alert(4)"
    status["rewards"] = [{"function": each, "mean": 1.0, "std": 0.0} for each in (HOSTILE, long, "</script><b>")]
    status["series"].append(row("rl_reward_function_mean", 1.0, 3, {"reward_function": HOSTILE}))
    status["hyperparameters"] = {HOSTILE: 1.0}
    status["not_judged"].append({"condition": HOSTILE, "reason": HOSTILE, "cause": "error"})
    status["nonfinite"].append({"metric": HOSTILE, "kind": HOSTILE, "count": 1})
    status["links"]["docs"] = "javascript:alert(5)"
    return data


def empty() -> Json:
    """A run that has just begun: every list is empty, and every fact that can be absent is."""
    data = healthy()
    status = data["status"]
    for name, value in status.items():
        if isinstance(value, list):
            status[name] = []
    status.update(
        hyperparameters={}, verdict={**status["verdict"], "word": "fine", "code": "starting", "text": "No step yet."}
    )
    absent = ("step", "steps_planned", "steps_per_second", "seconds_left", "last_step_seconds_ago")
    status["run"].update(
        dict.fromkeys((*absent, "last_checkpoint_step", "last_good_checkpoint_step")), state="starting"
    )
    status["run"].update(labels={}, info={}, model="")
    data["history"]["curves"] = []
    return data


def starting() -> Json:
    """The first step is over: one value a curve."""
    data = changed(step=1, steps_per_second=None, seconds_left=None, last_checkpoint_step=None)
    for each in data["history"]["curves"]:
        each.update(steps=each["steps"][:1], values=each["values"][:1])
    return data


RUNS: dict[str, Callable[[], Json]] = {
    "healthy": healthy,
    "broken": broken,
    "finished": lambda: over("finished", "fine", "The run finished at step 600, and nothing was wrong with it."),
    "failed": lambda: over("failed", "act", "The run failed at step 600: RuntimeError.", exception="RuntimeError"),
    "resumed": lambda: changed(attempt=2, started=NOW - 60),
    "without_kl": without_kl,
    "many_rewards": many_rewards,
    "hostile": hostile,
    "starting": starting,
    "empty": empty,
}
