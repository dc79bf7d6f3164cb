"""Public logs of real runs, and the healthy ones among them with planted faults.

A folder has index.json, one object a run (file, repo, label: healthy, broken or unclear, log_every), and runs/. A
folder of planted faults has planted.json (file, source, repo, fault, at: its first step, full: the step of its full
size, names and also: the families that name it and its symptoms, log_every), and runs/.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rlexporter.conditions.table import CONDITIONS
from scripts.limits.factors import Raised, alarms, judged, table, tunable, tuned

_HEAD = (
    *("healthy, critical", "healthy, any", "unclear, critical", "broken, any", "broken, critical"),
    *("planted, named", "least of a fault", "wrong name too", "delay, median / p90"),
)
_LABELS = ("healthy", "unclear", "broken")


@dataclass(frozen=True)
class Run:
    """A run, and what it raises; ``source``: for a planted fault, what the run raises without it."""

    about: Mapping[str, Any]
    raised: Raised
    source: Raised | None = None

    @property
    def repo(self) -> str:
        """Where it comes from."""
        return str(self.about["repo"])


@dataclass
class Score:
    """The figures of a set of runs; alerts of severity info are left out."""

    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LABELS, 0))
    any: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LABELS, 0))
    critical: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LABELS, 0))
    faults: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    wrong: int = 0
    delays: list[float] = field(default_factory=list)

    def add(self, other: Score) -> None:
        """Add the figures of other runs."""
        for label in _LABELS:
            self.runs[label] += other.runs[label]
            self.any[label] += other.any[label]
            self.critical[label] += other.critical[label]
        for fault, named in other.faults.items():
            self.faults[fault] += named
        self.wrong += other.wrong
        self.delays += other.delays

    @property
    def planted(self) -> list[bool]:
        """Whether each planted fault was named."""
        return [each for named in self.faults.values() for each in named]

    @property
    def cost(self) -> float:
        """What is to be made small. A page that is wrong costs most, then a warning that is, then what is missed."""
        broken = self.runs["broken"]
        missed = 3 * (broken - self.any["broken"]) + 2 * (broken - self.critical["broken"])
        false = 20 * self.critical["healthy"] + 5 * self.any["healthy"] + self.critical["unclear"]
        return false + missed + self.planted.count(False) + 0.5 * self.wrong + 0.01 * self._p90

    @property
    def _p90(self) -> float:
        return sorted(self.delays)[int(0.9 * (len(self.delays) - 1))] if self.delays else 0.0

    def cells(self) -> list[str]:
        """As cells of a table."""
        least = (
            min((sum(named) / len(named), fault) for fault, named in self.faults.items()) if self.faults else (1, "")
        )
        planted = self.planted
        return [
            *(_of(self.critical["healthy"], self.runs["healthy"]), _of(self.any["healthy"], self.runs["healthy"])),
            _of(self.critical["unclear"], self.runs["unclear"]),
            *(_of(self.any["broken"], self.runs["broken"]), _of(self.critical["broken"], self.runs["broken"])),
            _of(sum(planted), len(planted)),
            f"{least[0]:.0%} {least[1]}".strip(),
            _of(self.wrong, len(planted)),
            f"{median(self.delays):g} / {self._p90:g}" if self.delays else "",
        ]


def _of(number: int, total: int) -> str:
    return f"{number} of {total}" if total else ""


def load(folder: Path) -> list[Run]:
    """Every run, judged once with each factor."""
    index = json.loads((folder / "index.json").read_text())
    raised = judged([folder / "runs" / row["file"] for row in index], "grpo")
    return [Run(row, each) for row, each in zip(index, raised, strict=True)]


def load_planted(folder: Path, real: Iterable[Run]) -> list[Run]:
    """Every planted fault, judged once with each factor."""
    clean = {run.about["file"]: run.raised for run in real}
    index = json.loads((folder / "planted.json").read_text())
    raised = judged([folder / "runs" / row["file"] for row in index], "grpo")
    return [Run(row, each, clean[row["source"]]) for row, each in zip(index, raised, strict=True)]


def score(runs: Iterable[Run], factors: Mapping[str, float]) -> Score:
    """Count what these runs would raise."""
    found = Score()
    for run in runs:
        raised = alarms(run.raised, factors)
        if run.source is not None:
            _planted(found, run, dict(raised), dict(alarms(run.source, factors)))
            continue
        label = run.about["label"]
        found.runs[label] += 1
        found.any[label] += bool(raised)
        found.critical[label] += any(severity == "critical" for _, (_, severity, _) in raised)
    return found


def _planted(found: Score, run: Run, raised: dict[Any, Any], clean: dict[Any, Any]) -> None:
    """Count an alert that first fires after the fault began, and not in the same step without it."""
    about = run.about
    after = [
        (family, step)
        for key, (family, _, step) in raised.items()
        if step >= about["at"] and clean.get(key, ("", "", -1))[2] != step
    ]
    good = [step for family, step in after if family in about["names"]]
    expected = {*about["names"], *about["also"], *(family for family, _, _ in clean.values())}
    found.faults[about["fault"]].append(bool(good))
    found.wrong += any(family not in expected for family, _ in after)
    if good:
        found.delays.append((min(good) - about["full"]) / max(1, about["log_every"]))


def page(real: Sequence[Run], planted: Mapping[str, Sequence[Run]]) -> str:
    """The figures, as Markdown. ``planted``: by a name for the table; limits are tuned on the first."""
    first = next(iter(planted.values()), [])
    together = [*real, *first]
    base = score(together, {})
    rows = [["as they are", *base.cells()]]
    rows += [[f"as they are, planted: {name}", *score(runs, {}).cells()] for name, runs in planted.items()]
    left_out, moved = Score(), []
    for repo in sorted({run.repo for run in real}):
        factors = tuned(lambda tried, repo=repo: score([r for r in together if r.repo != repo], tried).cost)  # type: ignore[misc]
        left_out.add(score([run for run in together if run.repo == repo], factors))
        moved += [f"`{name}` x {factor:g}" for name, factor in factors.items()]
    rows.append(["tuned without a repository and scored on it, all together", *left_out.cells()])
    lines = table(("limits", *_HEAD), rows)
    often = ", ".join(f"{name} ({moved.count(name)})" for name in sorted(set(moved), key=moved.count, reverse=True))
    lines += ["", f"Limits that tuning without a repository moves, and for how many of them: {often or 'none'}.", ""]
    rows = []
    for condition in filter(tunable, CONDITIONS):
        for factor in (0.5, 2.0):
            cells = score(together, {condition.name: factor}).cells()
            if cells != base.cells():
                rows.append([f"`{condition.name}`", f"{factor:g}", *cells])
    lines += ["Half and double each limit, one at a time; limits that are not listed change nothing.", ""]
    return "\n".join(lines + table(("limit", "factor", *_HEAD), rows))
