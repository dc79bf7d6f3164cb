"""The same runs pushed and scraped: equal values, the same alerts, and every query finds as much."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from rlexporter.catalog.metrics import NAMED
from tests.dashboards import world
from tests.dashboards.grafana import ANY, Json, View, answer, panels
from tests.dashboards.test_queries import DASHBOARDS, Server
from tests.e2e.collectors import GRPC, HTTP, collector
from tests.e2e.victoria import alerting, receiving, scraping, settle
from tests.tools import Prometheus, eventually, heard, prometheus, scraped

_SECONDS = 60.0
_SCRAPE = 3.0
"""The seconds between two scrapes, in which one process answers 43 requests."""

Key = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Sides:
    """Who has scraped the runs, and the one that they were pushed to, at a moment when nothing changed."""

    prometheus: Server
    victoria: Server
    pushed: Server


_STEADY_SECONDS = 10.0
"""For so long nothing more is found by the rules."""


@contextlib.contextmanager
def _sides(folder: Path) -> Iterator[Sides]:
    """Runs of every kind, GRPO and PPO among them, healthy and broken, to the end."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        pushed = stack.enter_context(receiving(folder / "pushed"))
        environment.setenv("RLEXPORTER_OTLP", f"http://127.0.0.1:{pushed.port}/opentelemetry")
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        with world.running() as (targets, ticks):
            victoria = stack.enter_context(scraping(folder / "scraped", targets, f"{_SCRAPE:.0f}s"))
            world.play(ticks)
            slowly = dict.fromkeys(("scrape_interval", "scrape_timeout"), f"{_SCRAPE:.0f}s")
            server = stack.enter_context(prometheus("3", folder / "prometheus", targets, scrape=slowly))
            _judge(stack, folder, victoria, pushed)
            since = time.time()
            found = Sides(
                Server(server, scraped(server, len(targets), since)),
                Server(victoria, scraped(victoria, len(targets), since)),
                Server(pushed, heard(pushed, len(targets), since)),
            )
        yield found


def _judge(stack: contextlib.ExitStack, folder: Path, *databases: Prometheus) -> None:
    """Start our rules in all of them, and wait until they find the same for a while, and that a loss is NaN among it.

    Of a NaN loss the receiver keeps nothing but what was counted.
    """
    steady: dict[str, Any] = {}
    judges = [stack.enter_context(alerting(folder / f"alerts-{each.port}", each)) for each in databases]

    def done() -> bool:
        for each in databases:
            settle(each)
        first, *others = (_firing_now(each) for each in judges)
        cause, *causes = (_causes(each) for each in databases)
        same = all(each == first for each in others) and all(each == cause for each in causes)
        if steady.get("found") != (first, cause):
            steady.update(found=(first, cause), since=time.monotonic())
        known = ("RLNotANumber", world.BROKEN) in first and ("nonfinite", world.BROKEN) in cause
        return same and known and time.monotonic() > steady["since"] + _STEADY_SECONDS

    eventually(done)
    time.sleep(2.0)
    for each in databases:
        settle(each)


def _firing_now(judge: Prometheus) -> set[tuple[str, str]]:
    alerts = [each for each in judge.get("alerts")["alerts"] if each["state"] == "firing"]
    return {(each["labels"]["alertname"], each["labels"].get("run", "")) for each in alerts}


def _causes(database: Prometheus) -> set[tuple[str, str]]:
    """What is named of each run; a rule that reads others sees what they gave one evaluation before."""
    found = database.query("count by (condition, run) (rl:run_cause)")
    return {(each["metric"]["condition"], each["metric"]["run"]) for each in found}


def _labels(metric: Json) -> Key:
    """Without where it is from; a bound written in one way: `1` in a push is `1.0` in a scrape."""
    own = {name: value for name, value in metric.items() if name not in ("job", "instance")}
    if "le" in own:
        own["le"] = str(float(own["le"]))
    return frozenset(own.items())


def _all(server: Server) -> dict[Key, float]:
    found = server.ask("query", {"query": '{run=~".+",__name__=~"(rl|rlexporter)_.+"}', "time": f"{server.at:.3f}"})[
        "result"
    ]
    return {_labels(each["metric"]): float(each["value"][1]) for each in found}


def _names(keys: Iterable[Key]) -> set[str]:
    return {dict(key)["__name__"] for key in keys}


def _nan(sides: Sides) -> set[Key]:
    return {key for key, value in _all(sides.prometheus).items() if math.isnan(value)}


OF_A_SCRAPE = {"rlexporter_scrapes_total", "rlexporter_time_seconds"}
"""What only an answer to a scraper has, or has in another number."""


@pytest.mark.slow
def test_pushed_is_what_is_scraped(tmp_path: Path) -> None:
    """Every series, every alert, and what every query of a dashboard finds, by the name of the service as the job."""
    with _sides(tmp_path) as sides:
        _every_series_is_there_and_equal(sides, sides.prometheus)
        _every_series_is_there_and_equal(sides, sides.victoria)
        jobs = {each["metric"]["job"] for each in sides.pushed.instant(_view(world.ALL), "rl_run_info")}
        assert jobs == {"rlexporter"}
        _every_query_of_every_dashboard_finds_as_much(sides)


def _every_series_is_there_and_equal(sides: Sides, scraper: Server) -> None:
    """To the last label. VictoriaMetrics drops NaN, and keeps twelve digits of a number.

    Beside them there is how many values histograms have that can be negative, and for some minutes what a run was
    before it began, and what had gone wrong before more did: nothing tells a receiver that a series has ended.
    """
    scraped, pushed, nan = _all(scraper), _all(sides.pushed), _nan(sides)
    expected = {key for key in scraped if dict(key)["__name__"] not in OF_A_SCRAPE} - nan

    assert len(expected) > 3000
    assert {"rl_loss", "rl_policy_ratio_mean"} <= _names(nan)
    assert not expected - pushed.keys()
    assert not {key for key in expected if not math.isclose(pushed[key], scraped[key], rel_tol=1e-11)}
    signed = {f"{metric.series}_count" for metric in NAMED.values() if metric.signed}
    ended = {"rl_run_info", "rl_incident", "rl_run_cause_info", "rl_nearest_limit_fraction", "rl_threshold"}
    assert _names(pushed.keys() - expected - nan) - signed <= ended, "what was pushed is still seen a while"


def _view(run: str) -> View:
    return View({**ANY, "job": "rlexporter", "run": run, "datasource": "prometheus"}, _SECONDS, _SCRAPE)


def _answer(server: Server, run: str, panel: Json, target: Json) -> set[Key]:
    """The labels of what a panel gets, of now and not of a cache."""
    found = answer(lambda at, query: server.ask(at, {**query, "nocache": "1"}), _view(run), panel, target, server.at)
    keys = {_labels(each["metric"]) for each in found}
    assert len(keys) == len(found)
    return keys


SCRAPES = {"Scrapes", "Series", "Duration of a scrape", "Clock off by", "Time seconds"}
"""Panels that show how runs are scraped."""
EARLIER = {"Process", "Runs", "Why", "Wrong now", "The number behind it"}
"""Panels that also show what a run was before it began, or what has ended or is worse now: a receiver keeps it, and is
told at once of what may be over before the next scrape."""


def _every_query_of_every_dashboard_finds_as_much(sides: Sides) -> None:
    """With the same labels. Where nothing is scraped, nothing is seen of scrapes."""
    asked = [
        (panel, target, run)
        for dashboard in DASHBOARDS.values()
        for panel in panels(dashboard)
        for target in panel["targets"]
        for run in ("grpo", "ppo", world.ALL, world.BROKEN, world.RANKS)
    ]

    def differs(panel: Json, target: Json, run: str) -> object:
        scraped = _answer(sides.victoria, run, panel, target)
        pushed = _answer(sides.pushed, run, panel, target)
        excused = (
            (panel["title"] in SCRAPES and not pushed)
            or (panel["title"] in EARLIER and scraped <= pushed)
            or panel["title"] == "Every series"  # what is there is compared before
            # Drawn if a value came near, and pushes and scrapes have not seen the same ones.
            or ("rl_threshold" in target["expr"] and "@ end()" in target["expr"])
            or panel["title"] == "Nearest to an alert, by number"
            # It is NaN from about the first scrape on, which is before or after the first push.
            or (run == world.BROKEN and "rl_loss" in target["expr"])
        )
        if excused or scraped == pushed:
            return None
        return panel["title"], run, target["expr"][:40], "scraped", scraped - pushed, "pushed", pushed - scraped

    with ThreadPoolExecutor(4) as pool:
        different = [each for each in pool.map(differs, *zip(*asked, strict=True)) if each]
    assert len(asked) > 1000
    assert not different, "\n".join(map(str, different))


LIFE = """
import os, sys, time
from rlexporter import Exporter
from rlexporter.model.step import RunFacts

exporter = Exporter(run="a", port=0, linger=0).start()
exporter.run.begin(RunFacts(algorithm="grpo", step=0))
exporter.log({"reward": 1.0})
time.sleep(0.2)
child = os.fork()
if not child:
    exporter.log({"reward": 99.0})
    time.sleep(0.2)
    sys.exit(7)
exporter.log({"reward": 2.0})
ended = time.monotonic()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert time.monotonic() - ended < 30
"""


@pytest.mark.parametrize(("protocol", "end"), [(HTTP, "exit"), pytest.param(GRPC, "signal", marks=pytest.mark.slow)])
def test_a_process_ends(protocol: str, end: str) -> None:
    """Its last state is pushed, and a child that it has forked pushes nothing and ends by itself."""
    with collector(protocol) as at:
        variables = {"RLEXPORTER_OTLP": at.address, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        variables |= {"OTEL_METRIC_EXPORT_INTERVAL": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "100"}
        variables |= {"PYTHONWARNINGS": "ignore"}
        code = LIFE + ("" if end == "exit" else "\nimport signal; signal.raise_signal(signal.SIGTERM)")
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ | variables, capture_output=True, text=True, timeout=600
        )
        pushes = list(at.pushes)

    assert done.returncode == (0 if end == "exit" else -15), done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("rlexporter: ")]
    assert not [line for line in said if "fork_posix" not in line], "gRPC tells of a fork in the middle of a push"
    assert pushes[-1].value("rl_run_state", state="stopped" if end == "exit" else "preempted") == 1.0
    assert pushes[-1].value("rl_reward_mean") == 2.0
    assert not [each for each in pushes if each.value("rl_reward_mean") == 99.0]
