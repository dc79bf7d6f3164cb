"""Which conditions are needed: judges recorded runs with all of them, and again without each one that fired.

    python -m scripts.evidence [--json FILE] FOLDER ...

A folder has an `index.json`: a list of runs, each with its `file` and either a `label` (healthy, broken), or the step
`at` which its fault begins and the conditions or families that are right `names` for it. Those of `tests/data/faults`
were recorded live; logs of others stay where they are. A condition is needed by a run that without it is told later,
by a wrong name, or not at all.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlexporter import recording
from rlexporter.catalog.conditions import CONDITION_NAMED, CONDITIONS
from rlexporter.commands import recorded_alerts
from rlexporter.conditions import from_catalog
from rlexporter.model.condition import Family, Severity

_OF_THE_MACHINE = frozenset((Family.SLOW, Family.STALL))
"""Families that say something of the machine of a toy, not of its training."""
_NEVER = 1 << 62


@dataclass(frozen=True)
class Case:
    """A recorded run, and what should be said of it. ``names``: empty if any alert will do."""

    path: Path
    source: str
    """The folder that it is of."""
    algorithm: str = ""
    healthy: bool = False
    at: int = 0
    names: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its folder and its file."""
        return f"{self.source}/{self.path.name}"


@dataclass(frozen=True)
class Told:
    """What was said of a run: the first alerts by condition, and which condition comes first in the end."""

    fired: dict[str, int]
    first: str

    def steps(self, case: Case) -> tuple[int, int]:
        """Return the step in which the fault was told, and that in which it was named; `_NEVER` for not at all."""
        after = {name: step for name, step in self.fired.items() if step >= case.at}
        right = {name: step for name, step in after.items() if not case.names or name in case.names}
        told = min(after.values(), default=_NEVER)
        named = min(right.values(), default=_NEVER) if not case.names or self.first in case.names else _NEVER
        return told, named


@dataclass
class Row:
    """The evidence for a condition: the runs that need it, those that it alarmed wrongly, and where it fired."""

    condition: str
    needed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    fired: int = 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the runs, print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m scripts.evidence", description="Which conditions are needed.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    options = parser.parse_args(arguments)
    cases = [case for folder in options.folders for case in read(folder)]
    rows = evidence(cases)
    print("\n".join(table(rows, cases)))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def read(folder: Path) -> Iterator[Case]:
    """Yield the runs of a folder whose labels say what is to be said of them."""
    for row in json.loads((folder / "index.json").read_text()):
        path = next(path for path in (folder / row["file"], folder / "runs" / row["file"]) if path.exists())
        label = row.get("label", "broken" if row.get("names") or not row.get("healthy", True) else "healthy")
        if label in ("healthy", "broken"):
            yield Case(
                path,
                folder.name,
                algorithm=row.get("algorithm", ""),
                healthy=label == "healthy",
                at=row.get("at", 0),
                names=_conditions(row.get("names", ())),
            )


def _conditions(names: Iterable[str]) -> frozenset[str]:
    """Return the conditions that are called so, or whose family is."""
    wanted = {*names}
    return frozenset(each.name for each in CONDITIONS if wanted & {each.name, each.family.value})


def evidence(cases: Sequence[Case]) -> list[Row]:
    """Return a row a condition, in the order of the catalog."""
    rows = {each.name: Row(each.name) for each in CONDITIONS}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case, (told, needed) in zip(cases, pool.map(_needed, cases, chunksize=4), strict=True):
            for name in told.fired:
                rows[name].fired += 1
                if case.healthy and CONDITION_NAMED[name].family not in _OF_THE_MACHINE:
                    rows[name].wrong.append(case.name)
            for name in needed:
                rows[name].needed.append(case.name)
    return [*rows.values()]


def _needed(case: Case) -> tuple[Told, list[str]]:
    """Return what is said of a run, and the conditions without which less is said."""
    recorded = recording.read(case.path, case.algorithm)
    told = judged(recorded)
    if case.healthy:
        return told, []
    before = told.steps(case)
    return told, [name for name in told.fired if _is_worse(judged(recorded, {name}).steps(case), before)]


def _is_worse(without: tuple[int, int], before: tuple[int, int]) -> bool:
    return any(later > earlier for later, earlier in zip(without, before, strict=True))


def judged(recorded: recording.Recording, off: Iterable[str] = ()) -> Told:
    """Judge a run without the conditions ``off``."""
    with _without({*off}):
        report = recorded_alerts.judge(recorded)
    fired: dict[str, int] = {}
    for alert in report.alerts:
        if alert.condition and alert.severity != Severity.INFO.value:
            fired.setdefault(alert.condition, alert.step)
    first = next((each["name"] for each in report.incidents), "")
    return Told(fired, first)


@contextmanager
def _without(off: set[str]) -> Iterator[None]:
    """Leave conditions out of the catalog for a while."""
    from_catalog.CONDITIONS = tuple(each for each in CONDITIONS if each.name not in off)
    try:
        yield
    finally:
        from_catalog.CONDITIONS = CONDITIONS


def table(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of a Markdown table: the counts a condition, by where they are from."""
    sources = list(dict.fromkeys(case.source for case in cases))
    yield f"| condition | {' | '.join(f'needed in {source}' for source in sources)} | fired | wrong |"
    yield f"|---|{'---|' * (len(sources) + 2)}"
    for row in rows:
        by = [sum(name.startswith(f"{source}/") for name in row.needed) for source in sources]
        yield f"| `{row.condition}` | {' | '.join(map(str, by))} | {row.fired} | {len(row.wrong)} |"


if __name__ == "__main__":
    main()
