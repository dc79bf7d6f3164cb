"""Recorded runs of real trainers with tiny models, healthy and broken: index.json, expected.json, and the runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlexporter.conditions.table import CONDITIONS
from scripts.limits.factors import Raised, alarms, judged, table, tunable, tuned

FOLDERS = {
    "GRPO": ("grpo", "grpo_mid"),
    "RLOO": ("rloo",),
    "modern PPO": ("ppo",),
    "legacy PPO": ("ppo_legacy", "ppo_legacy07"),
}
_HEAD = (
    "healthy runs with an alert",
    "broken runs with one before the fault",
    "visible faults rightly named",
    "with a wrong name too",
    "delay, p90",
)


@dataclass(frozen=True)
class Run:
    """A recorded run, and what is known of it."""

    file: str
    healthy: bool
    expected: Mapping[str, Any]
    raised: Raised


@dataclass(frozen=True)
class Score:
    """The figures of a set of runs; alerts of severity info are left out."""

    healthy: int
    false: int
    early: int
    visible: int
    named: int
    wrong: int
    broken: int
    p90: int

    @property
    def cost(self) -> float:
        """What is to be made small: a false alarm costs as much as ten broken runs that are not named."""
        return 10 * self.false + 10 * self.early + (self.visible - self.named) + self.wrong + self.p90 / 100

    def cells(self) -> list[str]:
        """As cells of a table."""
        named, wrong = f"{self.named} of {self.visible}", f"{self.wrong} of {self.broken}"
        return [f"{self.false} of {self.healthy}", str(self.early), named, wrong, str(self.p90)]


def load(folder: Path) -> list[Run]:
    """Every run, judged once with each factor."""
    index = json.loads((folder / "index.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())["runs"]
    raised = judged([folder / row["file"] for row in index])
    return [
        Run(row["file"], row["healthy"], expected.get(row["file"].removesuffix(".jsonl"), {}), each)
        for row, each in zip(index, raised, strict=True)
    ]


def score(runs: Iterable[Run], factors: Mapping[str, float]) -> Score:
    """Count what these runs would raise."""
    healthy = false = early = visible = named = wrong = broken = 0
    delays = []
    for run in runs:
        found, about = [(family, step) for _, (family, _, step) in alarms(run.raised, factors)], run.expected
        if run.healthy:
            healthy, false = healthy + 1, false + bool(found)
            continue
        after = [alarm for alarm in found if alarm[1] >= about["onset"]]
        good = [step for family, step in after if family in about["names"]]
        broken += 1
        early += about["onset"] > 2 and len(after) < len(found)
        visible += not about["hidden"]
        named += bool(good) and not about["hidden"]
        wrong += any(family not in (*about["names"], *about["also"]) for family, _ in after)
        if good:
            delays.append(max(0, min(good) - max(about["visible_from"], about["onset"])))
    p90 = sorted(delays)[int(0.9 * (len(delays) - 1))] if delays else 0
    return Score(healthy, false, early, visible, named, wrong, broken, p90)


def _of(runs: list[Run], folders: Iterable[str]) -> list[Run]:
    return [run for run in runs if run.file.partition("/")[0] in folders]


def page(runs: list[Run]) -> str:
    """The figures, as Markdown."""
    base = score(runs, {})
    rows = [["as they are, all runs", *base.cells()]]
    rows += [[f"as they are, {name}", *score(_of(runs, each), {}).cells()] for name, each in FOLDERS.items()]
    lines = table(("limits, runs", *_HEAD), rows)
    rows = []
    for name, folders in FOLDERS.items():
        rest = [run for run in runs if run.file.partition("/")[0] not in folders]
        factors = tuned(lambda tried, rest=rest: score(rest, tried).cost)  # type: ignore[misc]
        moved = ", ".join(f"`{each}` x {factor:g}" for each, factor in factors.items()) or "none"
        rows.append([name, moved, *score(_of(runs, folders), factors).cells()])
    lines += ["", "Leave one generation out: tuned on three folders, scored on the fourth.", ""]
    lines += table(("scored on", "limits that tuning on the others moves", *_HEAD), rows)
    rows = []
    for condition in filter(tunable, CONDITIONS):
        for factor in (0.5, 2.0):
            changed = score(runs, {condition.name: factor})
            if changed != base:
                kind = "relative" if condition.detector.relative else "absolute"
                rows.append([f"`{condition.name}` ({kind})", f"{factor:g}", *changed.cells()])
    lines += ["", "Half and double each limit, one at a time; limits that are not listed change nothing.", ""]
    return "\n".join(lines + table(("limit", "factor", *_HEAD), rows))
