"""Which conditions are needed: judges recorded runs with all conditions, and again without each one that told first.

    python -m scripts.evidence [--json FILE] [--write] [FOLDER ...]     judge, and print the table
    python -m scripts.evidence --check                                  fail for a condition without a row

The runs recorded live (`tests/data/faults`) are always judged. A FOLDER holds runs of others, which stay where they
are: an `index.json` with a `label` a run (healthy, broken), with an `expected.json` of families beside it (toys), or a
`planted.json` of faults planted into other runs. A condition is needed by a run that without it is told later, later
by a critical alert, by a wrong name, or not at all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rlexporter.catalog.metrics import CATALOG
from rlexporter.conditions import watch
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS
from rlexporter.logs import reader, recorded_alerts
from rlexporter.model.condition import Condition, Family, Severity
from scripts.readers import readers

ROOT = Path(__file__).parent.parent
LIVE = ROOT / "tests/data/faults"
PAGE = ROOT / "docs/evidence.md"
_INFO = Severity.INFO.value
_OF_THE_MACHINE = frozenset(family.value for family in (Family.SLOW, Family.STALL))
"""Families that say something of the machine of a toy, not of its training."""
_NEVER = 1 << 62
_GIVEN = {
    "ratio_low": "the documents that the project began with warn of a ratio of 0.1",
    "solved": "says that nothing is wrong",
}
"""Why a condition stays that no run needs. Any NaN and any infinity is a fault besides."""
_LIVE, _KINDS = "live", ("live", "real", "planted", "toy")
_MARKS = "<!-- evidence -->", "<!-- end of evidence -->"


@dataclass(frozen=True)
class Case:
    """A recorded run, and what should be said of it.

    ``names``: the families, or conditions, that are right; empty if any will do. ``at``: the step from which an alert
    is of the fault. ``usual``: what is said of the run without its fault, which tells nothing of it.
    """

    path: Path
    kind: str
    """Where the run is from: recorded live, a real run, a fault planted into a real log, or a toy."""
    algorithm: str = ""
    healthy: bool = False
    at: int = 0
    names: frozenset[str] = frozenset()
    usual: Path | None = None

    @property
    def live(self) -> bool:
        """Whether it was recorded by us: then ``names`` are those that its verdict should name first."""
        return self.kind == _LIVE

    @property
    def name(self) -> str:
        """What kind of run it is, and its file."""
        return f"{self.kind}/{self.path.name}"


class Alert(NamedTuple):
    """What was said in a step. ``name``: a condition, or the alert on the state of a run."""

    name: str
    family: str
    severity: str
    step: int


class Judged(NamedTuple):
    """All that was said of a run, and what its verdict names first in the end."""

    alerts: tuple[Alert, ...]
    first: str


class Told(NamedTuple):
    """The steps in which a fault was told by any alert, and by a right name; `_NEVER` for not at all.

    ``misnamed``: 1 if the verdict names something else in the end. ``paged``: the step of the first critical alert with
    a right name.
    """

    told: int
    named: int
    misnamed: int
    paged: int

    def is_worse(self, before: Told) -> bool:
        """Return True if anything is later than ``before``, or the name is another one in the end."""
        return any(mine > theirs for mine, theirs in zip(self, before, strict=True))


@dataclass
class Row:
    """The evidence for a condition: the runs that need it, those that it alarmed wrongly, and where it fired."""

    condition: str
    needed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the runs, print the table, and write it, with the readers of each metric, as JSON; or check the page."""
    parser = argparse.ArgumentParser(prog="python -m scripts.evidence", description="Which conditions are needed.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--write", action="store_true", help="write the table into docs/evidence.md")
    parser.add_argument("--check", action="store_true", help="only check that each condition has a row there")
    options = parser.parse_args(arguments)
    if options.check:
        return _checked()
    cases = [case for folder in (LIVE, *options.folders) for case in read(folder, options.folders)]
    rows = evidence(cases)
    lines = "\n".join(table(rows, cases))
    print(lines)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        both = {"conditions": [asdict(row) for row in rows], "metrics": readers(CATALOG)}
        options.json.write_text(json.dumps(both, indent=1) + "\n")
    unseen = [kind for kind in _KINDS if kind not in {case.kind for case in cases}]
    if options.write and unseen:
        print(f"evidence: {PAGE.relative_to(ROOT)} stays as it is: no folder of {', '.join(unseen)} runs was named")
    elif options.write:
        before, _, rest = PAGE.read_text().partition(_MARKS[0])
        PAGE.write_text(f"{before}{_MARKS[0]}\n\n{lines}\n\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}")
    return 0


def _checked() -> int:
    """Print each condition without a run that needs it; return the exit status."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    needed = {name for name, cells in rows if any(cell.strip() for cell in cells.split("|")[: len(_KINDS)])}
    missing = [each.name for each in CONDITIONS if each.name not in needed and not _is_given(each)]
    for name in missing:
        print(f"evidence: no run in docs/evidence.md needs {name}: record one (make faults), or serve the number only")
    return bool(missing)


def _is_given(condition: Condition) -> bool:
    return condition.name.startswith("nonfinite") or condition.name in _GIVEN


def read(folder: Path, others: Sequence[Path] = ()) -> Iterator[Case]:
    """Yield the runs of a folder, those whose labels say what is to be said of them."""
    if (folder / "planted.json").exists():
        yield from _planted(folder, (folder.parent / "own", *(each for each in others if each != folder)))
        return
    rows = json.loads((folder / "index.json").read_text())
    expected = folder / "expected.json"
    families = json.loads(expected.read_text())["runs"] if expected.exists() else {}
    for row in rows:
        path = next(path for path in (folder / row["file"], folder / "runs" / row["file"]) if path.exists())
        wanted = families.get(row["file"].removesuffix(".jsonl"), {})
        label = row.get("label") or ("healthy" if row.get("healthy", not row.get("names")) else "broken")
        if label in ("healthy", "broken") and not wanted.get("hidden"):
            yield Case(
                path,
                _LIVE if folder == LIVE else "toy" if families else "real",
                algorithm=row.get("algorithm", ""),
                healthy=label == "healthy",
                at=row.get("at", wanted.get("onset", 0)),
                names=frozenset(row.get("names", wanted.get("names", ()))),
            )


def _planted(folder: Path, clean: Sequence[Path]) -> Iterator[Case]:
    """Yield runs with a planted fault. ``clean``: folders, one of which has the runs without it."""
    for row in json.loads((folder / "planted.json").read_text()):
        places = (each / "runs" / row["source"] for each in clean)
        usual = next((path for path in places if path.exists()), None)
        yield Case(folder / "runs" / row["file"], "planted", at=row["at"], names=frozenset(row["names"]), usual=usual)


def evidence(cases: Sequence[Case]) -> list[Row]:
    """Return a row a condition, in the order of the catalog."""
    rows = {each.name: Row(each.name) for each in CONDITIONS}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case, (found, needed) in zip(cases, pool.map(_needed, cases, chunksize=2), strict=True):
            for name in {alert.name for alert in found.alerts if alert.severity != _INFO} & {*rows}:
                rows[name].fired.append(case.name)
                if case.healthy and CONDITION_NAMED[name].family.value not in _OF_THE_MACHINE:
                    rows[name].wrong.append(case.name)
            for name in needed:
                rows[name].needed.append(case.name)
    return [*rows.values()]


def _needed(case: Case) -> tuple[Judged, list[str]]:
    """Return what is said of a run, and the conditions without which less is said."""
    found = judged(case.path, case.algorithm)
    if case.healthy:
        return found, []
    usual = usually(case)
    before = told(case, found, usual)
    doubtful = dict.fromkeys(each.name for each in found.alerts if each.step in before or each.name == found.first)
    without = {name: judged(case.path, case.algorithm, [name]) for name in doubtful if name in CONDITION_NAMED}
    return found, [name for name in without if told(case, without[name], usual).is_worse(before)]


def usually(case: Case) -> Collection[Alert]:
    """Return what is said of the run without its fault."""
    return judged(case.usual, case.algorithm).alerts if case.usual else ()


def told(case: Case, found: Judged, usual: Collection[Alert] = ()) -> Told:
    """Return when the fault of a run was told, and when it was named. ``usual``: what tells nothing of it."""
    before = {(each.name, each.severity) for each in found.alerts if each.step < case.at}
    late = [each for each in found.alerts if each.step >= case.at and (each.name, each.severity) not in before]
    late = [each for each in late if each.severity != _INFO or (case.live and each.name in case.names)]
    new = [each for each in late if each not in usual]
    right = [each for each in new if not case.names or {each.family, each.name} & case.names]
    return Told(
        min((each.step for each in new), default=_NEVER),
        min((each.step for each in right), default=_NEVER),
        int(case.live and found.first not in case.names),
        min((each.step for each in right if each.severity == Severity.CRITICAL.value), default=_NEVER),
    )


def judged(path: Path, algorithm: str = "", off: Iterable[str] = ()) -> Judged:
    """Judge a run without the conditions ``off``."""
    with _without({*off}), _unpacked(path) as plain:
        report = recorded_alerts.judge(reader.read(plain, algorithm))
    alerts = (Alert(each.condition or each.alert, each.family, each.severity, each.step) for each in report.alerts)
    return Judged(tuple(alerts), next((each["name"] for each in report.incidents), ""))


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield a file that is not compressed, with the content of ``path``."""
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        yield plain


@contextmanager
def _without(off: set[str]) -> Iterator[None]:
    """Leave conditions out of the catalog for a while."""
    with patch.object(watch, "CONDITIONS", tuple(each for each in CONDITIONS if each.name not in off)):
        yield


def table(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of a Markdown table: the counts a condition, by where they are from."""
    wrong = Counter(case.kind for case in cases if not case.healthy)
    healthy = sum(case.healthy for case in cases)
    heads = (f"of {wrong[kind]} {kind}" for kind in _KINDS)
    yield f"| condition, and the runs that need it | {' | '.join(heads)} | fired in | wrongly, of {healthy} healthy |"
    yield f"|---|{'---|' * (len(_KINDS) + 2)}"
    for row in rows:
        by = Counter(name.split("/")[0] for name in row.needed)
        cells = [str(by[kind] or "") for kind in _KINDS]
        yield f"| `{row.condition}` | {' | '.join(cells)} | {len(row.fired)} | {len(row.wrong) or ''} |"


if __name__ == "__main__":
    sys.exit(main())
