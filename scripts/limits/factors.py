"""Judges recorded runs with all limits multiplied by a factor.

Conditions are judged independently of each other, so that one pass over the runs with all limits multiplied gives what
each of them would do with that factor; everything else is put together from such passes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path

from rlexporter.conditions.judge import Thresholds
from rlexporter.conditions.table import CONDITIONS
from rlexporter.logs import reader
from rlexporter.logs.recorded_alerts import Report, judge
from rlexporter.model.condition import Condition

FACTORS = (0.5, 0.71, 1.0, 1.41, 2.0)

Key = tuple[str, str]
"""A condition and a severity."""
Alarm = tuple[str, str, int]
"""A family, a severity, and the first step at which it was raised."""
Raised = dict[float, dict[Key, Alarm]]
"""By factor: what was raised first by each condition and severity."""


def tunable(condition: Condition) -> bool:
    """Whether another number would make sense: not where it only tells 0 from 1."""
    return not condition.finding and all(limit.value != 0.0 for limit in condition.limits)


def scaled(factor: float) -> Thresholds:
    """Every tunable limit, multiplied."""
    limits = {}
    for condition in filter(tunable, CONDITIONS):
        for limit in condition.limits:
            value = limit.value or 0.0
            new = (
                {name: each * factor for name, each in value.items()} if isinstance(value, Mapping) else value * factor
            )
            limits[condition.name, limit.severity.value] = new
    return limits


def judged(files: Sequence[Path], algorithm: str = "") -> list[Raised]:
    """What each file raises with each factor, in the order of ``files``; as many at once as there are processors."""
    found = []
    with Pool() as pool:
        for raised in pool.imap(_judged, [(file, algorithm) for file in files], chunksize=4):
            found.append(raised)
            print(f"\r{len(found)} of {len(files)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _judged(given: tuple[Path, str]) -> Raised:
    file, algorithm = given
    recorded = reader.read(file, algorithm)
    return {factor: _raised(judge(recorded, scaled(factor) if factor != 1.0 else {})) for factor in FACTORS}


def _raised(report: Report) -> dict[Key, Alarm]:
    """Alerts on the end of the run have no condition: they are the same with every factor."""
    return {
        (fired.condition or fired.alert, fired.severity): (fired.family, fired.severity, fired.step)
        for fired in report.alerts
        if fired.severity != "info"
    }


def alarms(raised: Raised, factors: Mapping[str, float]) -> list[tuple[Key, Alarm]]:
    """What would be raised with each condition's limits multiplied by its factor, 1 for those without one."""
    return [
        (key, alarm)
        for factor, by_key in raised.items()
        for key, alarm in by_key.items()
        if factors.get(key[0], 1.0) == factor
    ]


def tuned(cost: Callable[[Mapping[str, float]], float]) -> dict[str, float]:
    """The factor of each condition at which ``cost`` is smallest, one after the other; without those that stay 1."""
    factors: dict[str, float] = {}
    best = cost(factors)
    for _ in range(2):
        for condition in filter(tunable, CONDITIONS):
            for factor in sorted(FACTORS, key=lambda each: abs(each - 1.0)):
                tried = {**factors, condition.name: factor}
                found = cost(tried)
                if found < best:
                    factors, best = tried, found
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    names = list(head)
    return [
        "| " + " | ".join(names) + " |",
        "|---" * len(names) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
