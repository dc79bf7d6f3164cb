"""docs/dashboards.md names dashboards, rows and panels that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlexporter.catalog import CATALOG
from rlexporter.generate.dashboards import dashboards
from tests.tools import ROOT

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs/dashboards.md").read_text()


def _titles(dashboard: dict[str, Any]) -> set[str]:
    rows = dashboard["panels"]
    return {each["title"] for row in rows for each in (row, *row.get("panels", ()))}


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of each table's rows."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_each_dashboard_has_its_row() -> None:
    """With its uid, and with no other."""
    made = [json.loads(text)["uid"] for text in dashboards(CATALOG).values()]
    named = re.findall(r"^\| [a-zA-Z ]+ \| `(rlexporter-\w+)` \|", PAGE, re.MULTILINE)

    assert sorted(named) == sorted(made)


def test_what_is_here_is_here() -> None:
    """Whatever the tables side by side call a row or a panel is the title of one."""
    made = [json.loads(text) for text in dashboards(CATALOG).values()]
    names = {each["uid"].removeprefix("rlexporter-") for each in made} | {"run of PPO"}
    titles = set().union(*map(_titles, made))
    called = [
        name
        for cells in _rows(PAGE.partition("## Side by side")[2])
        for name in re.findall(r"\*([^*]+)\*", re.sub(r"`[^`]*`", "", cells[-1]))
    ]

    assert sorted({name for name in called if name not in names | titles}) == []
    assert len(called) > 50
