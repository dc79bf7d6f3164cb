"""What `on_critical="stop"` would have done to recorded runs: stop a healthy one, spare the rest of a broken one.

A folder is one that `scripts.limits.real` (of runs, or of planted faults) or `scripts.limits.toys` describes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rlexporter.conditions.table import CONDITIONS
from rlexporter.logs import reader
from rlexporter.logs.recorded_alerts import Report, judge
from rlexporter.terminal import wrapped
from scripts.limits.factors import table

_WIDTH = 140
_HEALTHY = (("real", "healthy"), ("toy", "healthy"))
_BROKEN = (("real", "broken"), ("planted", "broken"), ("toy", "broken"))
_HEAD = (
    *("condition that stops the run", "healthy real runs, of those that show it", "healthy toys"),
    *("broken real runs", "planted faults", "broken toys"),
)


@dataclass(frozen=True)
class Run:
    """A run as it was judged; ``kind``: real, planted or toy; ``onset``: the first step of its fault, where known."""

    kind: str
    label: str
    report: Report
    onset: int

    @property
    def stopped(self) -> str:
        """The condition that would have stopped it; empty if none."""
        return self.report.stop.condition if self.report.stop else ""

    @property
    def early(self) -> bool:
        """Whether that was before its fault, and so wrong."""
        return self.report.stop is not None and self.report.stop.step < self.onset


def load(folder: Path, algorithm: str = "") -> list[Run]:
    """Every run of a folder, judged with the limits as they are. ``algorithm``: where a file does not say."""
    found = []
    for kind, label, path, onset in _rows(folder):
        found.append(Run(kind, label, judge(reader.read(path, algorithm)), onset))
        print(f"\r{len(found)} runs of {folder}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _rows(folder: Path) -> Iterator[tuple[str, str, Path, int]]:
    if (folder / "planted.json").exists():
        for row in json.loads((folder / "planted.json").read_text()):
            yield "planted", "broken", folder / "runs" / row["file"], row["at"]
        return
    index = json.loads((folder / "index.json").read_text())
    if "label" in index[0]:
        for row in index:
            yield "real", row["label"], folder / "runs" / row["file"], 0
        return
    faults = json.loads((folder / "expected.json").read_text())["runs"]
    for row in index:
        label = "healthy" if row["healthy"] else "broken"
        yield "toy", label, folder / row["file"], faults.get(row["file"].removesuffix(".jsonl"), {}).get("onset", 0)


def page(runs: Sequence[Run]) -> str:
    """The figures, as Markdown: a run counts for the condition that would have stopped it."""
    names = [condition.name for condition in CONDITIONS if any(run.stopped == condition.name for run in runs)]
    rows = [["all together", *_cells(runs, "")], *([f"`{name}`", *_cells(runs, name)] for name in names)]
    unclear = [run for run in runs if run.label == "unclear"]
    known = [run for run in runs if run.label == "broken" and run.onset]
    fired = {alert.condition for run in runs for alert in run.report.alerts if alert.severity == "critical"}
    later = ", ".join(f"`{each.name}`" for each in CONDITIONS if each.name in fired.difference(names)) or "none"
    text = (
        f"Of the unclear runs {_of(unclear)} would have stopped. Of the runs with a fault whose first step is known, "
        f"{sum(run.early for run in known)} of {len(known)} would have stopped before it. A condition that is not "
        f"listed would have stopped none of these runs. Of those, the following were critical all the same, after "
        f"another condition, as its symptom, or as one that stops no run by default: {later}. The others were never "
        "seen to be critical."
    )
    return "\n".join([*table(_HEAD, rows), "", *wrapped(text, _WIDTH)])


def _cells(runs: Sequence[Run], condition: str) -> Iterator[str]:
    """What ``condition`` would have stopped, or any if it is empty: how many, and the median of what that saves."""
    for group in _HEALTHY:
        mine = _group(runs, group)
        yield _of([run for run in mine if not condition or run.report.checks.get(condition)], condition)
    for group in _BROKEN:
        mine = _group(runs, group)
        saved = [run.report.saved for run in mine if run.stopped and condition in ("", run.stopped) and not run.early]
        share = f", {median(saved):.0f} % saved" if saved else ""
        yield f"{len(saved)} of {len(mine)}{share}" if not condition else f"{len(saved)}{share}" if saved else ""


def _group(runs: Iterable[Run], group: tuple[str, str]) -> list[Run]:
    return [run for run in runs if (run.kind, run.label) == group]


def _of(runs: Sequence[Run], condition: str = "") -> str:
    return f"{sum(bool(run.stopped) and condition in ('', run.stopped) for run in runs)} of {len(runs)}"
