"""What Grafana fills in itself is not in the JSON, and is what Grafana's own packages say it is."""

from __future__ import annotations

import json
from typing import Any

from scripts.pack.dashboards.defaults import CUSTOM, OPTIONS, less, without_defaults
from tests.dashboards.grafana import WRITTEN, loaded, panels
from tests.programs import evaluated

# What Grafana's packages export for each table; what they leave to the code of a panel is not in them.
_EXPORTED = """
const found = {}, schema = `${process.cwd()}/node_modules/@grafana/schema/dist/esm`;
for (const kind of ["heatmap", "stat", "table"])
    found[kind] = (await import(`${schema}/raw/composable/${kind}/panelcfg/x/types.gen.mjs`)).defaultOptions;
found.fields = (await import(`${schema}/veneer/common.types.mjs`)).defaultTableFieldOptions;
console.log(JSON.stringify(found));
"""


def test_nothing_is_written_that_grafana_fills_in() -> None:
    """And what it fills in can be left out again without a trace: nothing else was lost."""
    for uid, written in WRITTEN.items():
        assert without_defaults(written) == written, uid
        assert loaded(written) != written, uid
        assert without_defaults(loaded(written)) == written, uid


def test_what_is_not_a_default_stays() -> None:
    """Another value, another type, a longer list, and what Grafana knows no default of."""
    filled_in = {"mode": "none", "group": "A", "show": False, "calcs": [], "color": {"mode": "scheme", "steps": 64}}
    said = {"mode": "normal", "group": "A", "show": 0, "calcs": ["last"], "color": {"mode": "scheme", "steps": 32}}

    assert less(said, filled_in) == {
        "mode": "normal",
        "show": 0,
        "calcs": ["last"],
        "color": {"steps": 32},
    }
    assert less({"axisSoftMin": 0, "color": {}}, {"color": "red"}) == {"axisSoftMin": 0, "color": {}}


def test_what_grafana_and_its_schema_want_is_there() -> None:
    """Options, overrides and custom properties that migrations read without asking, and a type of each threshold."""
    wrong = [
        (uid, panel["title"])
        for uid, dashboard in WRITTEN.items()
        for panel in panels(dashboard)
        if "options" not in panel
        or not isinstance(panel["fieldConfig"]["overrides"], list)
        or (panel["type"] == "heatmap" and not panel["options"])
        or panel["fieldConfig"]["defaults"].get("thresholds", {"mode": "absolute"})["mode"] != "absolute"
        or not all(target["expr"] for target in panel["targets"])
    ]
    assert wrong == []


def test_the_tables_are_those_of_the_schema() -> None:
    """Each value that Grafana's schema has for a property of the tables is the one of the tables."""
    theirs = json.loads("".join(evaluated("grafana-schema", _EXPORTED, None)))

    agreed = _agreed(CUSTOM["table"], theirs.pop("fields"))
    for kind, options in theirs.items():
        agreed += _agreed(OPTIONS[kind], options)
    assert agreed == 18


def _agreed(ours: Any, theirs: Any) -> int:
    """How many values both have; they are the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return sum(_agreed(value, theirs[name]) for name, value in ours.items() if name in theirs)
    assert ours == theirs
    return 1
