"""Which panels have data, into docs/dashboards.md: `python -m scripts.panels [--check]`.

The tests of each TRL version leave what they saw in .work/panels: `make versions`, and tests/versions/test_panels.py of
the newest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlexporter.catalog.metrics import CATALOG
from scripts.pack.dashboards import dashboards
from scripts.pack.dashboards.absent import reason
from scripts.pack.dashboards.families import FAMILIES, GRPO, PPO
from tests.dashboards.grafana import own_panels

ROOT = Path(__file__).parent.parent
SEEN = ROOT / ".work/panels"
PAGE = ROOT / "docs/dashboards.md"
BEGIN, END = "<!-- panels: begin -->", "<!-- panels: end -->"
ALGORITHMS = ("grpo", "rloo", "ppo", "ppo-legacy")


def table(seen: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
    """The lines of the table: a row a panel, in the order of the dashboards, and a column an algorithm."""
    yield f"| row: panel | {' | '.join(ALGORITHMS)} |"
    yield "|---" * (len(ALGORITHMS) + 1) + "|"
    made = {each["uid"]: each for each in map(json.loads, dashboards(CATALOG).values())}
    panels = {
        family.uid: [f"{row}: {panel['title']}" for row, panel in own_panels(made[family.uid])] for family in FAMILIES
    }
    for panel in _merged(*panels.values()):
        cells = (_cell(panel, each, seen) if panel in panels[_uid(each)] else "-" for each in ALGORITHMS)
        yield f"| {panel} | {' | '.join(cells)} |"


def _uid(algorithm: str) -> str:
    return (PPO if algorithm.startswith("ppo") else GRPO).uid


def _merged(first: list[str], second: list[str]) -> list[str]:
    """Both, in their order: what only the second has comes after what it follows there."""
    found = list(first)
    for i, name in enumerate(second):
        if name not in found:
            found.insert(found.index(second[i - 1]) + 1, name)
    return found


def _cell(panel: str, algorithm: str, seen: Mapping[str, Mapping[str, list[str]]]) -> str:
    kinds = seen.get(panel, {}).get(algorithm, ())
    if "healthy" in kinds:
        return "yes"
    return "when broken" if kinds else reason(algorithm, panel.rpartition(": ")[2]) or "empty"


def _seen() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(SEEN.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")]):
        for panel, of in json.loads(path.read_text()).items():
            found.setdefault(panel, {}).update(of)
    for each in ALGORITHMS:
        if not any(each in of for of in found.values()):
            raise SystemExit(f"panels: no run of {each} was seen; run: make compatibility")
    return found


def _filled(page: str) -> dict[str, set[int]]:
    """The rows of the table on ``page``, and the columns of the healthy runs in which each has data."""
    inside = page.partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in inside.splitlines() if line[:2] == "| "]
    return {row[0]: {i for i, cell in enumerate(row) if cell == "yes"} for row in rows}


def _holds(page: str, made: str) -> bool:
    """Tell whether all panels are on ``page``, and none of those that it says have data was empty.

    Those that a healthy run may leave empty may have some: a busy machine slows a step, which is a condition.
    """
    said, seen = _filled(page), _filled(made)
    return list(said) == list(seen) and all(said[panel] <= seen[panel] for panel in said)


def main() -> None:
    """Write the table, or check it."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    made = f"{head}{BEGIN}\n\n{chr(10).join(table(_seen()))}\n\n{END}{rest.partition(END)[2]}"
    if "--check" not in sys.argv:
        PAGE.write_text(made)
    elif not _holds(text, made):
        raise SystemExit("panels: docs/dashboards.md is not what the runs showed; run: python -m scripts.panels")


if __name__ == "__main__":
    main()
