"""Which panels have data, into docs/dashboards.md: `python -m scripts.panels [--check]`.

The tests of each TRL version leave what they saw in .work/panels: `make versions`, and tests/versions/test_panels.py of
the newest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlexporter.generate.dashboards.absent import reason

ROOT = Path(__file__).parent.parent
SEEN = ROOT / ".work/panels"
PAGE = ROOT / "docs/dashboards.md"
BEGIN, END = "<!-- panels: begin -->", "<!-- panels: end -->"
ALGORITHMS = ("grpo", "rloo", "ppo", "ppo-legacy")


def table(seen: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
    """The lines of the table: a row a panel, a column an algorithm."""
    yield f"| row: panel | {' | '.join(ALGORITHMS)} |"
    yield "|---" * (len(ALGORITHMS) + 1) + "|"
    for panel, of in seen.items():
        yield f"| {panel} | {' | '.join(_cell(panel, each, of.get(each)) for each in ALGORITHMS)} |"


def _cell(panel: str, algorithm: str, kinds: list[str] | None) -> str:
    if kinds is None:
        return reason(algorithm, panel.rpartition(": ")[2]) or "-"
    return "yes" if "healthy" in kinds else "when broken"


def _seen() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(SEEN.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")]):
        for panel, of in json.loads(path.read_text()).items():
            found.setdefault(panel, {}).update(of)
    for each in ALGORITHMS:
        if not any(each in of for of in found.values()):
            raise SystemExit(f"panels: no run of {each} was seen; run: make compatibility")
    return found


def _healthy(page: str) -> list[list[str]]:
    """The rows of the table on ``page``, and in which healthy runs each has data.

    What a run shows on its way down depends on how far it comes, and is not compared.
    """
    inside = page.partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in inside.splitlines() if line[:2] == "| "]
    return [[row[0], *(str(cell == "yes") for cell in row[1:])] for row in rows]


def main() -> None:
    """Write the table, or check it."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    made = f"{head}{BEGIN}\n\n{chr(10).join(table(_seen()))}\n\n{END}{rest.partition(END)[2]}"
    if "--check" not in sys.argv:
        PAGE.write_text(made)
    elif _healthy(made) != _healthy(text):
        raise SystemExit("panels: docs/dashboards.md is not what the runs showed; run: python -m scripts.panels")


if __name__ == "__main__":
    main()
