"""What the limits of the conditions are worth, on recorded runs: writes the figures in docs/alerts.md.

    python -m scripts.limits FOLDER     (with index.json, expected.json and the runs)

Conditions are judged independently of each other, so that one pass over the runs with all limits multiplied by a factor
gives what each of them would do with that factor; everything else is put together from such passes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlexporter import recording
from rlexporter.catalog import CONDITIONS
from rlexporter.commands.recorded_alerts import Report, judge
from rlexporter.conditions.judge import Thresholds
from rlexporter.model.condition import Condition

PAGE = Path(__file__).parent.parent / "docs/alerts.md"
FACTORS = (0.5, 0.71, 1.0, 1.41, 2.0)
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
Key = tuple[str, str]
"""A condition and a severity."""
Alarm = tuple[str, int]
"""A family, and the first step at which it was raised."""


@dataclass(frozen=True)
class Run:
    """A recorded run, and what is known of it. ``raised``: factor -> condition and severity -> alarm."""

    file: str
    healthy: bool
    expected: Mapping[str, Any]
    raised: dict[float, dict[Key, Alarm]]

    def alarms(self, factors: Mapping[str, float]) -> list[Alarm]:
        """What would be raised with each condition's limits multiplied by its factor."""
        return [
            alarm
            for factor, by_key in self.raised.items()
            for (name, _), alarm in by_key.items()
            if factors.get(name, 1.0) == factor
        ]


@dataclass(frozen=True)
class Score:
    """As score.py of the recorded runs counts: alerts of severity info are left out."""

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

    def row(self) -> str:
        """As cells of a table."""
        return (
            f"{self.false} of {self.healthy} | {self.early} | {self.named} of {self.visible} | "
            f"{self.wrong} of {self.broken} | {self.p90}"
        )


def tunable(condition: Condition) -> bool:
    """Whether another number would make sense: not where it only tells 0 from 1."""
    return not condition.signal.startswith("nonfinite") and all(
        limit.value not in (0.0, 0.5) for limit in condition.limits
    )


def scaled(factor: float) -> Thresholds:
    """Every tunable limit, multiplied."""
    limits = {}
    for condition in filter(tunable, CONDITIONS):
        for limit in condition.limits:
            value = limit.value
            new = (
                {name: each * factor for name, each in value.items()} if isinstance(value, Mapping) else value * factor
            )
            limits[condition.name, limit.severity.value] = new
    return limits


def load(folder: Path) -> list[Run]:
    """Every run, judged once with each factor."""
    index = json.loads((folder / "index.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())["runs"]
    thresholds = {factor: scaled(factor) if factor != 1.0 else {} for factor in FACTORS}
    runs = []
    for row in index:
        recorded = recording.read(folder / row["file"])
        raised = {factor: _raised(judge(recorded, limits)) for factor, limits in thresholds.items()}
        runs.append(Run(row["file"], row["healthy"], expected.get(row["file"].removesuffix(".jsonl"), {}), raised))
        print(f"\r{len(runs)} of {len(index)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def _raised(report: Report) -> dict[Key, Alarm]:
    """Alerts on the end of the run have no condition: they are the same with every factor."""
    return {
        (fired.condition or fired.alert, fired.severity): (fired.family, fired.step)
        for fired in report.alerts
        if fired.severity != "info"
    }


def score(runs: Iterable[Run], factors: Mapping[str, float]) -> Score:
    """Count what these runs would raise."""
    healthy = false = early = visible = named = wrong = broken = 0
    delays = []
    for run in runs:
        alarms, about = run.alarms(factors), run.expected
        if run.healthy:
            healthy, false = healthy + 1, false + bool(alarms)
            continue
        after = [alarm for alarm in alarms if alarm[1] >= about["onset"]]
        good = [step for family, step in after if family in about["names"]]
        broken += 1
        early += about["onset"] > 2 and len(after) < len(alarms)
        visible += not about["hidden"]
        named += bool(good) and not about["hidden"]
        wrong += any(family not in (*about["names"], *about["also"]) for family, _ in after)
        if good:
            delays.append(max(0, min(good) - max(about["visible_from"], about["onset"])))
    p90 = sorted(delays)[int(0.9 * (len(delays) - 1))] if delays else 0
    return Score(healthy, false, early, visible, named, wrong, broken, p90)


def tuned(runs: list[Run]) -> dict[str, float]:
    """The factor of each condition that is best on these runs; 1 where none is better."""
    factors: dict[str, float] = {}
    best = score(runs, factors).cost
    for _ in range(2):
        for condition in filter(tunable, CONDITIONS):
            for factor in sorted(FACTORS, key=lambda each: abs(each - 1.0)):
                tried = {**factors, condition.name: factor}
                cost = score(runs, tried).cost
                if cost < best:
                    factors, best = tried, cost
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def of(runs: list[Run], folders: Iterable[str]) -> list[Run]:
    """The runs in these folders."""
    return [run for run in runs if run.file.partition("/")[0] in folders]


def page(runs: list[Run]) -> str:
    """The figures, as Markdown."""
    head = " | ".join(_HEAD)
    lines = [f"| limits, runs | {head} |", "|---" * 6 + "|", f"| as they are, all runs | {score(runs, {}).row()} |"]
    for name, folders in FOLDERS.items():
        lines.append(f"| as they are, {name} | {score(of(runs, folders), {}).row()} |")
    lines += ["", "Leave one generation out: tuned on three folders, scored on the fourth.", ""]
    lines += [f"| scored on | limits that tuning on the others moves | {head} |", "|---" * 7 + "|"]
    for name, folders in FOLDERS.items():
        rest = [run for run in runs if run.file.partition("/")[0] not in folders]
        factors = tuned(rest)
        moved = ", ".join(f"`{each}` x {factor:g}" for each, factor in factors.items()) or "none"
        lines.append(f"| {name} | {moved} | {score(of(runs, folders), factors).row()} |")
    base = score(runs, {})
    lines += ["", "Half and double each limit, one at a time; limits that are not listed change nothing.", ""]
    lines += [f"| limit | factor | {head} |", "|---" * 7 + "|"]
    for condition in filter(tunable, CONDITIONS):
        for factor in (0.5, 2.0):
            changed = score(runs, {condition.name: factor})
            if changed != base:
                kind = "relative" if condition.baseline.relative else "absolute"
                lines.append(f"| `{condition.name}` ({kind}) | {factor:g} | {changed.row()} |")
    return "\n".join(lines)


def main(folder: str) -> None:
    """Measure, and write."""
    runs = load(Path(folder))
    before, _, rest = PAGE.read_text().partition("<!-- figures -->\n")
    _, _, after = rest.partition("<!-- end of figures -->\n")
    PAGE.write_text(f"{before}<!-- figures -->\n\n{page(runs)}\n\n<!-- end of figures -->\n{after}")
    print(score(runs, {}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
