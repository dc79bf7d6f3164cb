"""Derived signals of evaluations: scores that fell lastingly, alone or while the training reward rose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf, sqrt
from statistics import median

from rlexporter.conditions.past import deviation
from rlexporter.conditions.view import MAX_FUNCTIONS, Declared, Memory, View

declared = Declared()

SCORES = ("rl_eval_reward_mean", "rl_eval_reward", "rl_eval_score", "rl_eval_pass_at_k", "rl_validation_reward_mean")
"""The series of scores: more is better."""
_BETTER = re.compile(r"acc|avg@|mean@|reward|score|pass|solved|correct|success|f1|exact|win", re.IGNORECASE)
"""What a score of a framework's own name must contain to be one of which more is better."""
_NO_MEAN = re.compile(r"std|min|max|worst|count|num|len|size", re.IGNORECASE)


@declared.signal("evaluations_diverged", unit="scores", of="reward", reads=SCORES)
def evaluations_diverged(view: View, memory: Memory) -> float | None:
    """Count the scores that fell lastingly while the training reward rose; None in a step without an evaluation."""
    memory.fallen = _fallen(view, memory)
    if memory.fallen is None:
        return None
    rose = {name: view.step for name, rises in memory.fallen.items() if rises}
    memory.about(rose)
    return float(len(rose))


@declared.signal("evaluations_fallen", unit="scores", after=("evaluations_diverged",), reads=("evaluations_diverged",))
def evaluations_fallen(view: View, memory: Memory) -> float | None:
    """Count the other scores that fell lastingly."""
    if memory.fallen is None:
        return None
    fell = {name: view.step for name, rises in memory.fallen.items() if not rises}
    memory.about(fell)
    return float(len(fell))


def _fallen(view: View, memory: Memory) -> dict[str, bool] | None:
    """Return the scores that fell, and if the training reward rose meanwhile; None without an evaluation."""
    fallen: dict[str, bool] = {}
    seen = False
    rewards = memory.past["reward"].last(10)
    for name, score in _scores(view.functions, view.numbers):
        if name not in memory.evaluations and len(memory.evaluations) >= MAX_FUNCTIONS:
            continue
        seen = True
        evaluated = memory.evaluations[name]
        evaluated.add(score, median(rewards) if rewards else None)
        best = evaluated.best()
        if best is not None:
            then, now = evaluated.rewards[best], evaluated.rewards[-1]
            noise = deviation(rewards) / sqrt(len(rewards)) if rewards else inf
            fallen[name] = then is not None and now is not None and now - then > 2.0 * noise
    return fallen if seen else None


def _scores(
    functions: Mapping[str, Mapping[str, float | None]], numbers: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    """Return the scores of the step by name: data set, score and statistic; TRL's key where there is one data set."""
    for series in SCORES:
        if series in numbers:
            yield "validation", numbers[series]
        for labels, value in functions.get(series, {}).items():
            named = series != "rl_eval_score" or (_BETTER.search(labels) and not _NO_MEAN.search(labels))
            if named and value is not None and abs(value) < inf:
                yield "eval_reward" if labels == "default" else labels, value
