"""What Grafana fills in itself is not in the JSON, and is what Grafana's own packages say it is."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import Any

import pytest

from rlexporter.generate.dashboards.defaults import CUSTOM, OPTIONS, less, without_defaults
from tests.dashboards.grafana import WRITTEN, Json, loaded, panels
from tests.tools import REQUIRED, TOOLS

SCHEMA = TOOLS / "grafana-schema/node_modules/@grafana/schema/dist/esm"

# What Grafana's packages export for each table; what they leave to the code of a panel is not in them.
_EXPORTED = """
const found = {};
for (const kind of ["heatmap", "stat", "table"])
    found[kind] = (await import(`${process.argv[1]}/raw/composable/${kind}/panelcfg/x/types.gen.mjs`)).defaultOptions;
found.fields = (await import(`${process.argv[1]}/veneer/common.types.mjs`)).defaultTableFieldOptions;
console.log(JSON.stringify(found));
"""


def test_nothing_is_written_that_grafana_fills_in() -> None:
    """And what it fills in can be left out again without a trace: nothing else was lost."""
    for uid, written in WRITTEN.items():
        assert without_defaults(written) == written, uid
        assert loaded(written) != written, uid
        assert without_defaults(loaded(written)) == written, uid


def test_what_was_built_is_what_grafana_has() -> None:
    """A panel with every property spelt out loads as it was, and was not changed on the way."""
    built = _built()
    before = copy.deepcopy(built)

    written = without_defaults(built)

    assert loaded(written) == built == before
    assert len(json.dumps(written)) < 0.5 * len(json.dumps(built))


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
    if not SCHEMA.exists():
        reason = f"no @grafana/schema in {TOOLS}: `make tools` fetches it where there is npm"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    command = ["node", "--input-type=module", "--eval", _EXPORTED, str(SCHEMA)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    theirs = json.loads(done.stdout)

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


def _built() -> Json:
    """A dashboard of one panel of each type with a table, every property said."""
    made: list[Json] = []
    for kind, options in OPTIONS.items():
        defaults = {"unit": "s", "mappings": [], "links": [], "custom": CUSTOM.get(kind, {})}
        query: Json = {"refId": "A", "expr": "up", "editorMode": "code"}
        targets = [
            {**query, "range": True, "instant": False},
            {**query, "refId": "B", "range": False, "instant": True},
        ]
        made.append(
            {
                "type": kind,
                "links": [],
                "options": {**options, "own": 1},
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "targets": targets,
            }
        )
    variable = {"type": "query", "name": "x", "hide": 0, "regex": "", "options": [], "includeAll": False}
    source = {"type": "datasource", "hide": 0, "regex": ""}
    row = {"type": "row", "collapsed": True, "panels": made[:1]}
    return {"panels": [row, *made[1:]], "templating": {"list": [variable, source]}}
