"""Live runs of the demo, and what the dashboards of their families show of them, read as Grafana reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlexporter.catalog.metrics import CATALOG
from scripts.pack.dashboards import dashboards
from scripts.pack.dashboards.families import FAMILIES, PPO
from tests.dashboards.grafana import Json, View, loaded, mapped, own_panels
from tests.dashboards.transformations import tables, transformed
from tests.tools import ROOT, Prometheus
from tests.versions.trls import VERSION
from tests.versions.watched_demo import FOLDER

_OF: dict[tuple[int, ...], tuple[str, ...]] = {(1, 12): ("ppo",), (0, 11): ("ppo-legacy",)}
ALGORITHMS = ("grpo", "rloo") if VERSION >= (1, 16) else _OF.get(VERSION, ())
"""Those of this TRL: each algorithm once, in the newest version that has it."""
DASHBOARDS = {each["uid"]: each for each in map(loaded, map(json.loads, dashboards(CATALOG).values()))}


def start(stack: ExitStack, algorithm: str, port: int, *options: str, watched: Path | None = None) -> None:
    """Start a demo, which is killed when the stack is closed. ``watched``: the folder of what it waits for."""
    command = [sys.executable, "-m", "tests.versions.watched_demo", "demo", "--algorithm", algorithm]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if watched is not None:
        watched.mkdir()
        environ[FOLDER] = str(watched)
    process = subprocess.Popen(
        [*command, "--port", str(port), *options], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(process.wait)
    stack.callback(process.kill)


def dashboard(algorithm: str) -> Json:
    """The dashboard of the family of an algorithm."""
    return DASHBOARDS[PPO.uid if algorithm.startswith("ppo") else FAMILIES[0].uid]


def answer(server: Prometheus, view: View, panel: Json, target: Json, at: float) -> list[Json]:
    """What Prometheus answers to a target of a panel at this time, which is the end of what is shown."""
    step = view.interval(panel, target)
    query = {"query": view.fill(target["expr"], step, view.least(target))}
    if target["instant"]:
        return list(_get(server, "query", {**query, "time": f"{at:.3f}"}))
    span = {"start": f"{at - view.seconds:.3f}", "end": f"{at:.3f}", "step": f"{step}"}
    return list(_get(server, "query_range", {**query, **span}))


def _get(server: Prometheus, path: str, query: Mapping[str, str]) -> Any:
    url = f"http://127.0.0.1:{server.port}/api/v1/{path}"
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(query).encode(), timeout=600) as response:
            found = json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from None
    assert found["status"] == "success", (query, found)
    assert not found.get("warnings"), (query, found)
    assert not found.get("infos"), (query, found)
    return found["data"]["result"]


def verdict(server: Prometheus, view: View, of: Json, at: float) -> tuple[str, str]:
    """What a dashboard of one run says first: the word of its verdict, and the cause in words."""
    by = {panel["title"]: panel for _, panel in own_panels(of)}
    return _said(server, view, by["Verdict"], at), _said(server, view, by["Why"], at)


def _said(server: Prometheus, view: View, panel: Json, at: float) -> str:
    """The text of a panel of one number or word: the last one of its column, in its own words."""
    [target] = panel["targets"]
    answers = {target["refId"]: answer(server, view, panel, target, at)}
    # Before 11.5 Grafana left one series after the other.
    words = {_shown(panel, transformed(panel, tables(answers, ordered=each))) for each in (True, False)}
    assert len(words) == 1, (panel["title"], words)
    return words.pop()


def _shown(panel: Json, frame: dict[str, list[Any]]) -> str:
    fields, defaults = panel["options"]["reduceOptions"]["fields"], panel["fieldConfig"]["defaults"]
    values = [values for name, values in frame.items() if re.search(fields.strip("/") or "^Value", name) and values]
    if not values:
        return str(defaults["noValue"])
    value = values[0][-1]
    found = mapped(value if isinstance(value, str) else f"{value:g}", defaults["mappings"])
    assert found, value
    return str(found["text"])
