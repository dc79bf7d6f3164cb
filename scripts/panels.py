"""Which panels have data, into docs/dashboards.md: `python -m scripts.panels [--check]`.

The tests of each TRL version (`make versions`, and tests/versions/test_panels.py of the newest) leave what they saw in
.work/panels.
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
VERSIONS = ("1.16.0", "1.12.0", "0.11.4")
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
    for each in VERSIONS:
        path = SEEN / f"{each}.json"
        if not path.exists():
            raise SystemExit(f"panels: no run of trl {each} was seen; run: make versions")
        for panel, of in json.loads(path.read_text()).items():
            found.setdefault(panel, {}).update(of)
    return found


def main() -> None:
    """Write the table, or check it."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    made = f"{head}{BEGIN}\n\n{chr(10).join(table(_seen()))}\n\n{END}{rest.partition(END)[2]}"
    if "--check" in sys.argv:
        if made != text:
            raise SystemExit("panels: docs/dashboards.md is not what the runs showed; run: python -m scripts.panels")
    else:
        PAGE.write_text(made)


if __name__ == "__main__":
    main()
