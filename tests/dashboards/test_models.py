"""Grafana's own models of a dashboard know every field that ours have, and its types allow their values."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlexporter.catalog.metrics import CATALOG
from scripts.pack.dashboards import dashboards
from tests.dashboards.grafana import panels
from tests.programs import require_node

pytestmark = pytest.mark.slow
TEXTS = {name.removesuffix(".json"): text for name, text in dashboards(CATALOG).items()}

_HEAD = """\
import type { Dashboard } from '@grafana/schema';
// JSON spells the members of an enum as texts.
type Spelt<T> = T extends string ? `${T}` : T extends (infer E)[] ? Spelt<E>[]
    : T extends object ? { [K in keyof T]: Spelt<T[K]> } : T;
export const dashboard: Spelt<Dashboard> = """

_FALSE_ALARM = re.compile(r"""error TS2353: .*'"expr"' does not exist in type '\{ key\?: .* refId: string; \}'""")
"""An annotation's target is typed as a query of no data source in particular; Prometheus' has an expression."""


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """What differs after a round trip, or is not there any more."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{path}[{i}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is {theirs!r}"


def _round_trip(dashboard: dict[str, Any]) -> Any:
    pytest.importorskip("grafana_foundation_sdk", reason="it needs Python 3.11")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the classic model, which provisioning from files needs
        from grafana_foundation_sdk.cog import plugins
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard

        plugins.register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def test_nothing_is_lost_in_the_foundation_sdk() -> None:
    """Read and written by the official models, every field is there, with its value."""
    boards = {uid: json.loads(text) for uid, text in TEXTS.items()}

    assert [each for uid, ours in boards.items() for each in lost(ours, _round_trip(ours), uid)] == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    """On the dashboard, in the options of a panel, in a query."""
    ours = json.loads(TEXTS["rlexporter-run"])
    panel = next(each for each in panels(ours) if each["type"] == "heatmap")
    panel["options"]["yaxis"] = panel["options"].pop("yAxis")
    panel["targets"][0]["legend"] = ""
    panel["fieldConfig"]["defaults"]["custom"] = {"scale": "log"}
    ours["folder"] = "RL"

    assert len(list(lost(ours, _round_trip(ours)))) == 4


def _compile(folder: Path, texts: dict[str, str]) -> list[str]:
    """What the compiler says of dashboards as constants of Grafana's type."""
    modules = require_node("grafana-schema") / "node_modules"
    (folder / "node_modules").symlink_to(modules)
    (folder / "package.json").write_text('{"private": true}')
    for name, text in texts.items():
        (folder / f"{name}.ts").write_text(f"{_HEAD}{text.rstrip()};\n")
    options = "--noEmit --strict --skipLibCheck --pretty false --module nodenext --moduleResolution nodenext".split()
    command = ["node", str(modules / "typescript/bin/tsc"), *options, *(f"{name}.ts" for name in texts)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1, 2), done.stderr
    return [line for line in done.stdout.splitlines() if "error TS" in line]


def test_the_types_of_grafana_allow_it(tmp_path: Path) -> None:
    """Each is a constant of the type `Dashboard`, but for one false alarm an annotation; a wrong one is not."""
    wrong = TEXTS["rlexporter-fleet"].replace('"mode": "absolute"', '"mode": "absolut"', 1)
    errors = _compile(tmp_path, {**TEXTS, "wrong": wrong})
    known = [error for error in errors if _FALSE_ALARM.search(error)]
    others = [error for error in errors if error not in known]

    assert len(known) == sum(len(json.loads(text)["annotations"]["list"]) for text in [*TEXTS.values(), wrong])
    assert [error for error in others if not error.startswith("wrong.ts")] == []
    assert len(others) == 1
    assert "absolut" in others[0]
