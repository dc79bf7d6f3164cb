"""Hand-made runs under real servers: who hides whom, and what must not make a page: replicas, gaps, restarts."""

from __future__ import annotations

import time
from contextlib import ExitStack
from math import nan
from pathlib import Path

import pytest

from rlexporter import Exporter
from rlexporter.catalog import MANY_RUNS
from tests.e2e.paging import UNSEEN, chain, desk, exporting
from tests.tools import Prometheus, eventually, free_ports

pytestmark = pytest.mark.waits

WELL = {"loss": 0.1, "grad_norm": 1.0}
CAUSE = {"loss": 0.1, "grad_norm": nan}
SYMPTOM = {**WELL, "completions/clipped_ratio": 0.95}


def _log(exporter: Exporter, line: dict[str, float], times: int = 1) -> None:
    for _ in range(times):
        exporter.log(line)


def test_only_the_cause_is_told(tmp_path: Path) -> None:
    """Whichever of cause and symptom comes first; of five runs in one cluster, that they are five."""
    runs = ("cause first", "symptom first", "symptom only", *(f"sick {i}" for i in range(5)))
    ports = free_ports(runs)
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk"))
        exporters = {
            run: stack.enter_context(exporting(port, run, labels={"cluster": run.split()[0]}))
            for run, port in ports.items()
        }
        server = stack.enter_context(chain("3", tmp_path / "server", [*ports.values()], at))
        eventually(lambda: server.value("count(rl_run_start_timestamp_seconds)") == len(runs))

        for run in runs[:3]:
            _log(exporters[run], dict.fromkeys(SYMPTOM, 0.0), 6)
        _log(exporters["cause first"], CAUSE)
        _log(exporters["symptom first"], SYMPTOM, 10)
        for run in runs[3:]:
            _log(exporters[run], CAUSE)
        eventually(lambda: server.value('rl_condition{condition="nonfinite_grad",run="cause first"}') == 1)
        eventually(
            lambda: server.value('rl_condition{condition="truncation",severity="critical",run="symptom first"}') == 1
        )
        _log(exporters["cause first"], SYMPTOM | CAUSE, 10)
        _log(exporters["symptom first"], SYMPTOM | CAUSE)
        at.page("cause first", "RLGradientNonFinite")
        at.page("symptom first", "RLGradientNonFinite")
        _log(exporters["symptom only"], SYMPTOM, 10)
        at.page("symptom only", "RLTruncation")

        # The process knows a symptom that comes after its cause; one that came before is held back by Alertmanager.
        for run, expected in (
            ("cause first", {"RLGradientNonFinite"}),
            ("symptom first", {"RLGradientNonFinite", "RLTruncation"}),
        ):
            firing = server.query(f'ALERTS{{run="{run}",alertstate="firing",severity="critical"}}')
            assert {each["metric"]["alertname"] for each in firing} == expected
            assert at.pages(run) == {"RLGradientNonFinite": "firing"}
        sick = set(runs[3:])
        eventually(lambda: {run for run in sick if at.pages(run)} == sick)
        assert [at.pages(run) for run in sorted(sick)] == [{MANY_RUNS.alert: "firing"}] * 5
        (storm,) = [titles for titles in at.incidents().values() if MANY_RUNS.alert in titles[0]]
        assert storm[-1] == f"[critical] sick: {MANY_RUNS.alert}: {', '.join(sorted(sick))}"
        said = at.told("sick 0", MANY_RUNS.alert)[-1].description
        assert said == "Many of the 5 runs in cluster sick became sick within a quarter of an hour."


@pytest.mark.slow
def test_one_page_in_any_weather(tmp_path: Path) -> None:
    """Of a pair of replicas comes one page, and nothing of missed scrapes, a restart of both, or a run that moved."""
    ports = free_ports(("sick", "missed", "moved", "moved to", "late"))
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk"))

        def replicas(stack: ExitStack) -> list[Prometheus]:
            return [
                stack.enter_context(chain("3", tmp_path / replica, [*ports.values()], at, replica=replica))
                for replica in ("a", "b")
            ]

        runs = {name: stack.enter_context(exporting(ports[name], name)) for name in ("sick", "missed", "moved", "late")}
        with ExitStack() as first:
            servers = replicas(first)
            for server in servers:
                eventually(lambda server=server: server.value("count(rl_run_start_timestamp_seconds)") == len(runs))
            _log(runs["sick"], CAUSE)
            _log(runs["moved"], CAUSE)
            for name in ("sick", "moved"):
                at.page(name, "RLGradientNonFinite")

            runs["missed"].close()
            runs["moved"].close()
            stack.enter_context(exporting(ports["moved to"], "moved"))
            missed = f'up{{instance="127.0.0.1:{ports["missed"]}"}}'
            for server in servers:
                eventually(lambda server=server: (server.value(f"count_over_time(({missed} == 0)[30s:1s])") or 0) > 2)
            runs["missed"].start()
            for server in servers:
                eventually(lambda server=server: server.value(missed) == 1)
            firing = 'count(ALERTS{alertstate="firing",severity="critical"})'
            for server in servers:
                eventually(lambda server=server: server.value(firing) == 1)  # that of the old attempt has ended with it
        stopped = time.monotonic()
        eventually(lambda: time.monotonic() > stopped + UNSEEN + 2)
        gone = f"count(time() - rl:evaluating_since_timestamp_seconds > {UNSEEN})"
        for server in replicas(stack):
            eventually(lambda server=server: server.value(gone) == 1)
            assert server.value(firing) == 1
        _log(runs["late"], CAUSE)
        at.page("late", "RLGradientNonFinite")

        for run in ("sick", "late", "moved"):
            assert len(at.told(run)) == 1
            assert at.pages(run) == {"RLGradientNonFinite": "firing"}
        assert at.pages("missed") == {}
        assert len(at.incidents()) == 3
