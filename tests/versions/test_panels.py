"""Every query of every panel, against live runs of what this TRL trains, healthy and broken, in three databases.

Writes which panels have data into .work/panels; `python -m scripts.panels` makes the table of docs/dashboards.md of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import trl

from rlexporter.catalog import CATALOG
from rlexporter.generate.dashboards import dashboards
from rlexporter.generate.dashboards.absent import reason
from rlexporter.generate.dashboards.families import FAMILIES, PPO
from tests.dashboards.grafana import Json, View, loaded, own_panels
from tests.e2e import victoria
from tests.tools import GENERATIONS, ROOT, Prometheus, eventually, free_port, prometheus

VERSION = tuple(int(part) for part in trl.__version__.split(".")[:2])
_OF: dict[tuple[int, ...], tuple[str, ...]] = {(1, 12): ("ppo",), (0, 11): ("ppo-legacy",)}
ALGORITHMS = ("grpo", "rloo") if VERSION >= (1, 16) else _OF.get(VERSION, ())
FAULT = "nan@60"
_NAMED = 'rl:run_cause{condition=~"nonfinite_.+"}'
STEPS, SECONDS, SCRAPE = 70, 300.0, 3.0
DASHBOARDS = {each["uid"]: each for each in map(loaded, map(json.loads, dashboards(CATALOG).values()))}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ALGORITHMS, reason="each algorithm once, in the newest version that has it"),
]


@dataclass(frozen=True)
class Live:
    """A run that is there. ``broken``: its gradient was NaN in a step, and it died of it."""

    run: str
    algorithm: str
    broken: bool

    @property
    def dashboard(self) -> Json:
        """The dashboard of its family."""
        uid = PPO.uid if self.algorithm.startswith("ppo") else FAMILIES[0].uid
        return DASHBOARDS[uid]


def _start(algorithm: str, port: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rlexporter", "demo", "--algorithm", algorithm, "--port", str(port), *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Prometheus], list[Live]]]:
    """Both generations of Prometheus and a VictoriaMetrics, all with our rules, that have seen every run."""
    with ExitStack() as stack:
        ports = []
        for algorithm in ALGORITHMS:
            for options in (("--steps", "100000"), ("--steps", "100000", "--fault", FAULT, "--linger", "3600")):
                ports.append(free_port())
                process = _start(algorithm, ports[-1], *options)
                stack.callback(process.wait)
                stack.callback(process.kill)
        targets, folder = [f"127.0.0.1:{port}" for port in ports], tmp_path_factory.mktemp("panels")
        found = {
            each: stack.enter_context(
                prometheus(each, folder / each, targets, "3s", rules=victoria.RULES, scrape={"scrape_timeout": "3s"})
            )
            for each in GENERATIONS
        }
        found["VictoriaMetrics"] = stack.enter_context(victoria.scraping(folder / "victoria", targets))
        stack.enter_context(victoria.alerting(folder / "vmalert", found["VictoriaMetrics"]))
        for server in found.values():
            eventually(lambda server=server: len(server.query(f"rl_step >= {STEPS}")) == len(ALGORITHMS))
            eventually(lambda server=server: len(server.query('rl_run_state{state="failed"} == 1')) == len(ALGORITHMS))
            eventually(lambda server=server: len(server.query(_NAMED)) == len(ALGORITHMS))
        yield found, list(_lives(found["3"]))


def _lives(server: Prometheus) -> Iterator[Live]:
    dead = {each["metric"]["run"] for each in server.query('rl_run_state{state="failed"} == 1')}
    for each in server.query("rl_run_info"):
        run = each["metric"]["run"]
        yield Live(run, each["metric"]["algorithm"], run in dead)


def _answer(server: Prometheus, view: View, panel: Json, target: Json, at: float) -> list[Json]:
    step = view.interval(panel, target)
    query = {"query": view.fill(target["expr"], step)}
    if target["instant"]:
        return list(_get(server, "query", {**query, "time": f"{at:.3f}"}))
    return list(
        _get(server, "query_range", {**query, "start": f"{at - SECONDS:.3f}", "end": f"{at:.3f}", "step": f"{step}"})
    )


def _get(server: Prometheus, path: str, query: Mapping[str, str]) -> Any:
    url = f"http://127.0.0.1:{server.port}/api/v1/{path}"
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(query).encode(), timeout=600) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from None
    assert answer["status"] == "success", (query, answer)
    assert not answer.get("warnings"), (query, answer)
    assert not answer.get("infos"), (query, answer)
    return answer["data"]["result"]


def test_every_panel_has_data(databases: tuple[dict[str, Prometheus], list[Live]]) -> None:
    """The same ones in each database; of a healthy run all, but for those that say why not."""
    servers, lives = databases
    assert len(lives) == 2 * len(ALGORITHMS)
    at = time.time()
    seen: dict[str, dict[str, list[str]]] = {}
    empty, differing = [], []
    for live in lives:
        variables = {"job": "rlexporter", "run": live.run, "datasource": "prometheus"}
        view = View(variables, SECONDS, SCRAPE)
        for row, panel in own_panels(live.dashboard):
            filled = {
                name: any(_answer(server, view, panel, target, at) for target in panel["targets"])
                for name, server in servers.items()
            }
            if len(set(filled.values())) > 1:
                differing.append((live, row, panel["title"], filled))
            if all(filled.values()):
                kind = "broken" if live.broken else "healthy"
                seen.setdefault(f"{row}: {panel['title']}", {}).setdefault(live.algorithm, []).append(kind)
            elif not live.broken and not reason(live.algorithm, panel["title"]):
                empty.append((live.algorithm, row, panel["title"]))
    assert not differing, differing
    assert not empty, empty
    _write(seen)


def _write(seen: object) -> None:
    folder = ROOT / ".work/panels"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{trl.__version__}.json").write_text(json.dumps(seen, indent=1))


def test_the_verdict_names_the_fault(databases: tuple[dict[str, Prometheus], list[Live]]) -> None:
    """Of a run that died of NaN, in words; of a healthy one that nothing is wrong."""
    servers, lives = databases
    for live in lives:
        by = {panel["title"]: panel for _, panel in own_panels(live.dashboard)}
        view = View({"job": "rlexporter", "run": live.run}, SECONDS, SCRAPE)
        for name, server in servers.items():
            words = {}
            for title in ("Verdict", "Why"):
                found = _answer(server, view, by[title], by[title]["targets"][0], time.time())
                newest = max(found, key=lambda each: each["values"][-1][0])
                value = newest["metric"]["condition"] if title == "Why" else newest["values"][-1][1]
                words[title] = by[title]["fieldConfig"]["defaults"]["mappings"][0]["options"][value]["text"]
            if live.broken:
                assert words["Verdict"] == "act", name
                assert "NaN or infinite" in words["Why"], (name, live, words, server.query("rl:condition"))
            else:
                assert words == {"Verdict": "fine", "Why": "Nothing is wrong in what is judged."}
