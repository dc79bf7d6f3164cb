"""Every query of every panel, against live runs of what this TRL trains, healthy and broken, in two databases.

Writes which panels have data into .work/panels; `python -m scripts.panels` makes the table of docs/dashboards.md of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import trl

from scripts.pack.dashboards.absent import reason
from tests.dashboards.grafana import Json, View, asking, own_panels, resolved
from tests.e2e import victoria
from tests.tools import GENERATIONS, ROOT, Prometheus, eventually, free_port, prometheus
from tests.versions import demos
from tests.versions.demos import ALGORITHMS

FAULT = "nan@60"
_NAMED = 'last_over_time(rl:run_cause{condition=~"nonfinite.*"}[10m])'
STEPS, SECONDS, SCRAPE = 70, 300.0, 3.0
LATE, PATIENCE = 4.0, 600.0
"""Seconds after which all that a scrape or a rule has found is there, and in which something must have come."""

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


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Prometheus], list[Live]]]:
    """A Prometheus and a VictoriaMetrics, both with our rules, that have seen every run."""
    with ExitStack() as stack:
        ports = []
        for algorithm in ALGORITHMS:
            for options in (("--steps", "100000", "--fault", FAULT, "--linger", "3600"), ("--steps", "100000")):
                ports.append(free_port())
                demos.start(stack, algorithm, ports[-1], *options)
        targets, folder = [f"127.0.0.1:{port}" for port in ports], tmp_path_factory.mktemp("panels")
        patient = {"scrape_timeout": "3s"}
        newest = prometheus(GENERATIONS[-1], folder / "prometheus", targets, "3s", rules=victoria.RULES, scrape=patient)
        found = {"Prometheus": stack.enter_context(newest)}
        found["VictoriaMetrics"] = stack.enter_context(victoria.scraping(folder / "victoria", targets))
        stack.enter_context(victoria.alerting(folder / "vmalert", found["VictoriaMetrics"]))
        for server in found.values():
            eventually(lambda server=server: len(server.query(f"rl_step >= {STEPS}")) == len(ALGORITHMS))
            eventually(lambda server=server: len(server.query('rl_run_state{state="failed"} == 1')) == len(ALGORITHMS))

        def named() -> bool:
            # Rules read what rules have written: unsettled, it is ten seconds late each time.
            victoria.settle(found["VictoriaMetrics"])
            return all(len(server.query(_NAMED)) == len(ALGORITHMS) for server in found.values())

        eventually(named)
        yield found, list(_lives(found["Prometheus"]))


def _lives(server: Prometheus) -> Iterator[Live]:
    dead = {each["metric"]["run"] for each in server.query('rl_run_state{state="failed"} == 1')}
    for each in server.query("rl_run_info"):
        run = each["metric"]["run"]
        yield Live(run, each["metric"]["algorithm"], run in dead)


def test_every_panel_has_data(databases: tuple[dict[str, Prometheus], list[Live]]) -> None:
    """The same ones in both databases; of a healthy run all, but for those that say why not."""
    servers, lives = databases
    assert len(lives) == 2 * len(ALGORITHMS)
    seen: dict[str, dict[str, list[str]]] = {}
    empty = []
    for live in lives:
        for row, panel in own_panels(demos.dashboard(live.algorithm)):
            if _has_data(servers, live, panel):
                kind = "broken" if live.broken else "healthy"
                seen.setdefault(f"{row}: {panel['title']}", {}).setdefault(live.algorithm, []).append(kind)
            elif not live.broken and not reason(live.algorithm, panel["title"]):
                empty.append((live.algorithm, row, panel["title"]))
    assert not empty, empty
    _write(seen)


def _has_data(servers: dict[str, Prometheus], live: Live, panel: Json) -> bool:
    """Whether a panel has data in both databases, or in neither, at some moment; fail where there is no such moment.

    On a busy machine a round of vmalert takes more than the 5 seconds after which VictoriaMetrics calls a sample stale.
    """
    end = time.monotonic() + PATIENCE
    while len(filled := _filled(servers, live, panel, time.time() - LATE)) > 1 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(filled) == 1, (live, panel["title"])
    return filled.pop()


def _filled(servers: dict[str, Prometheus], live: Live, panel: Json, at: float) -> set[bool]:
    found = set()
    for server in servers.values():
        view = resolved(asking(server), _view(live), demos.dashboard(live.algorithm), at)
        found.add(any(demos.answer(server, view, panel, target, at) for target in panel["targets"]))
    return found


def _write(seen: object) -> None:
    folder = ROOT / ".work/panels"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{trl.__version__}.json").write_text(json.dumps(seen, indent=1))


def test_the_verdict_names_the_fault(databases: tuple[dict[str, Prometheus], list[Live]]) -> None:
    """Of a run that died of NaN, in words; of a healthy one that nothing is wrong: in both databases at one moment."""
    servers, lives = databases
    expected = {
        (live.run, name): ("act", "NaN or infinite") if live.broken else ("fine", "Nothing is wrong in what is judged.")
        for live in lives
        for name in servers
    }
    end = time.monotonic() + PATIENCE
    while (said := _said(servers, lives, time.time() - LATE)) != expected and time.monotonic() < end:
        time.sleep(0.1)
    assert said == expected


def _said(servers: dict[str, Prometheus], lives: list[Live], at: float) -> dict[tuple[str, str], tuple[str, str]]:
    """The word and the cause of each run in each database; of NaN and infinities, whichever they are, just that."""
    said = {}
    for live in lives:
        for name, server in servers.items():
            word, why = demos.verdict(server, _view(live), demos.dashboard(live.algorithm), at)
            said[live.run, name] = word, "NaN or infinite" if "NaN or infinite" in why else why
    return said


def _view(live: Live) -> View:
    return View({"job": "rlexporter", "run": live.run, "datasource": "prometheus"}, SECONDS, SCRAPE)
