"""Hand-made runs under real servers: who is called, for how long, and what hides what; nobody for servers that go away.

Minutes are shortened as `tests.e2e.paging` says; servers are really stopped, and started again on what they kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

import pytest

from rlexporter import Exporter
from scripts.pack.outside import MANY_RUNS
from tests.e2e.paging import MINUTE, SLACK, UNSEEN, Desk, chain, desk, exporting
from tests.tools import Prometheus, eventually, free_ports

pytestmark = pytest.mark.waits

WELL = {"loss": 0.1, "grad_norm": 1.0}
NAN = {"loss": 0.1, "grad_norm": nan}
HEALTHY = tuple(f"well-{i:02}" for i in range(8))
SCRAPE = max(3, MINUTE // 4)
"""Seconds: one process answers for all runs here, and on a busy machine it must not fall behind."""
SEEN = 'count(rl:run_state{state="running"})'


@dataclass
class Watch:
    """Servers that watch runs; Prometheus goes away when it is told to."""

    folder: Path
    ports: list[int]
    desk: Desk
    server: Prometheus = field(init=False)
    _open: ExitStack = field(default_factory=ExitStack)

    def begin(self) -> None:
        """Let Prometheus watch."""
        watched = chain("3", self.folder / "prometheus", self.ports, self.desk, scrape=SCRAPE)
        self.server = self._open.enter_context(watched)

    def end(self) -> None:
        """Stop it."""
        self._open.close()

    def finds(self, expression: str) -> None:
        """Wait until it finds something."""
        eventually(lambda: self.server.query(expression))

    def silent(self, minutes: float = UNSEEN / MINUTE + 1) -> None:
        """All runs of the fleet are seen, and so many minutes later nobody was called."""
        self.finds(f"{SEEN} == {len(HEALTHY)}")
        wait(minutes)
        assert self.server.query('ALERTS{alertstate="firing",severity=~"critical|warning"}') == []
        assert self.desk.webhook.bodies("/page") == []
        assert self.desk.webhook.bodies("/chat") == []


@contextmanager
def watching(folder: Path, ports: list[int]) -> Iterator[Watch]:
    """Servers that watch what serves there."""
    with desk("new", folder / "desk") as at:
        watch = Watch(folder, ports, at)
        watch.begin()
        try:
            yield watch
        finally:
            watch.end()


def wait(minutes: float) -> None:
    """So many of the shortened minutes, by the clock."""
    over = time.monotonic() + minutes * MINUTE
    eventually(lambda: time.monotonic() > over, minutes * MINUTE + 60)


@pytest.mark.slow
def test_who_was_away_calls_nobody(tmp_path: Path) -> None:
    """Eight runs are well, and servers, a network and a process come and go; a NaN would have been heard."""
    ports = free_ports(HEALTHY)
    with ExitStack() as stack:
        runs = {run: stack.enter_context(exporting(port, run)) for run, port in ports.items()}
        watch = stack.enter_context(watching(tmp_path, [*ports.values()]))
        watch.silent(3)
        for minutes in (3, 10):
            _prometheus_was_away(watch, minutes)
        _alertmanager_was_away(watch)
        _a_network_was_away(watch, [runs[run] for run in HEALTHY[:6]])
        _an_exporter_was_restarted(watch, runs[HEALTHY[-1]])
        runs[HEALTHY[6]].log(NAN)
        assert watch.desk.page(HEALTHY[6], "RLNotANumber").labels["severity"] == "critical"


def _prometheus_was_away(watch: Watch, minutes: float) -> None:
    """It knows runs that it has not seen for a while, and calls nobody before it had the time to see them."""
    watch.end()
    wait(minutes)
    watch.begin()
    watch.silent()


def _alertmanager_was_away(watch: Watch) -> None:
    watch.desk.end()
    wait(5)
    watch.desk.begin()
    watch.silent()


def _a_network_was_away(watch: Watch, cut: list[Exporter]) -> None:
    for exporter in cut:
        exporter.close()
    wait(2.5)
    for exporter in cut:
        exporter.start()
    watch.silent()


def _an_exporter_was_restarted(watch: Watch, exporter: Exporter) -> None:
    """In another process with the same name, where the old one was killed two minutes ago."""
    port = exporter.port or 0
    exporter.close()
    wait(2)
    with exporting(port, HEALTHY[-1]):
        watch.silent()


SICK, SIXTH = tuple(f"sick-{i}" for i in range(5)), "sixth"
AT_ONCE = tuple(f"once-{i:02}" for i in range(20))
CLUSTERS = {"five": (*SICK, SIXTH, "calm"), "twenty": AT_ONCE}


@pytest.mark.soak
@pytest.mark.timeout(1500 + 40 * MINUTE)  # the trouble lasts for more than half an hour, whatever a minute is here
def test_half_an_hour_of_trouble(tmp_path: Path) -> None:
    """Five runs are sick, and twenty elsewhere at once; half an hour later a sixth of the first."""
    ports = free_ports(run for names in CLUSTERS.values() for run in names)
    with ExitStack() as stack:
        runs = {
            run: stack.enter_context(exporting(ports[run], run, labels={"cluster": cluster}))
            for cluster, names in CLUSTERS.items()
            for run in names
        }
        watch = stack.enter_context(watching(tmp_path, [*ports.values()]))
        watch.finds(f"{SEEN} == {len(runs)}")
        for run in (*SICK, *AT_ONCE):
            runs[run].log(NAN)
        wait(30)
        began = time.time()
        runs[SIXTH].log(NAN)
        _the_sixth_is_paged_by_name(watch.desk, began)
        _twenty_at_once_are_one_page(watch.desk)


def _the_sixth_is_paged_by_name(at: Desk, began: float) -> None:
    """Within two minutes, although five of its cluster are sick; of those there was one page, which named them."""
    page = at.page(SIXTH, "RLNotANumber")
    assert page.at - began < 2 * MINUTE + SLACK
    assert page.description == f"Run {SIXTH}, rl_grad_norm, step 2: 1 NaN or infinite value."
    assert set(at.pages(SIXTH)) == {"RLNotANumber"}
    assert [at.pages(run) for run in SICK] == [{MANY_RUNS.alert: "firing"}] * len(SICK)
    titles = [each for each in at.incidents().values() if "] five" in each[0] or "(five)" in each[0]]
    assert sorted(each[-1] for each in titles) == [
        f"[critical] five: {MANY_RUNS.alert}: {', '.join(SICK)}",
        f"[critical] {SIXTH} (five): RLNotANumber",
    ]


def _twenty_at_once_are_one_page(at: Desk) -> None:
    """It names ten."""
    ten = ", ".join(AT_ONCE[:10])
    (titles,) = [each for each in at.incidents().values() if "twenty" in each[0]]
    assert titles[-1] == f"[critical] twenty: {MANY_RUNS.alert}: {ten} and 10 more"
    assert [at.pages(run) for run in AT_ONCE] == [{MANY_RUNS.alert: "firing"}] * len(AT_ONCE)


SYMPTOM = {**WELL, "completions/clipped_ratio": 0.95}


def _log(exporter: Exporter, line: dict[str, float], times: int = 1) -> None:
    for _ in range(times):
        exporter.log(line)


@pytest.mark.slow
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
        _log(exporters["cause first"], NAN)
        _log(exporters["symptom first"], SYMPTOM, 10)
        for run in runs[3:]:
            _log(exporters[run], NAN)
        eventually(lambda: server.value('rl_condition{condition="nonfinite",run="cause first"}') == 1)
        eventually(
            lambda: server.value('rl_condition{condition="truncation",severity="critical",run="symptom first"}') == 1
        )
        _log(exporters["cause first"], SYMPTOM | NAN, 10)
        _log(exporters["symptom first"], SYMPTOM | NAN)
        at.page("cause first", "RLNotANumber")
        at.page("symptom first", "RLNotANumber")
        _log(exporters["symptom only"], SYMPTOM, 10)
        at.page("symptom only", "RLLength")

        # The process knows a symptom that comes after its cause; one that came before is held back by Alertmanager.
        for run, expected in (
            ("cause first", {"RLNotANumber"}),
            ("symptom first", {"RLNotANumber", "RLLength"}),
        ):
            firing = server.query(f'ALERTS{{run="{run}",alertstate="firing",severity="critical"}}')
            assert {each["metric"]["alertname"] for each in firing} == expected
            assert at.pages(run) == {"RLNotANumber": "firing"}
        sick = set(runs[3:])
        eventually(lambda: {run for run in sick if at.pages(run)} == sick)
        assert [at.pages(run) for run in sorted(sick)] == [{MANY_RUNS.alert: "firing"}] * 5
        (storm,) = [titles for titles in at.incidents().values() if MANY_RUNS.alert in titles[0]]
        assert storm[-1] == f"[critical] sick: {MANY_RUNS.alert}: {', '.join(sorted(sick))}"
        said = at.told("sick 0", MANY_RUNS.alert)[-1].description
        assert said == "5 of the 5 runs in cluster sick became sick within a quarter of an hour."


@pytest.mark.slow
def test_one_page_of_a_pair(tmp_path: Path) -> None:
    """Of a pair of replicas comes one page, and no other when a run has moved, or both were away."""
    ports = free_ports(("sick", "moved", "moved to"))
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk"))

        def replicas(stack: ExitStack) -> list[Prometheus]:
            return [
                stack.enter_context(chain("3", tmp_path / replica, [*ports.values()], at, replica=replica))
                for replica in ("a", "b")
            ]

        def both_find(expression: str, value: float) -> None:
            for server in servers:
                eventually(lambda server=server: server.value(expression) == value)

        runs = {name: stack.enter_context(exporting(ports[name], name)) for name in ("sick", "moved")}
        firing = 'count(ALERTS{alertstate="firing",severity="critical"})'
        with ExitStack() as first:
            servers = replicas(first)
            both_find("count(rl_run_start_timestamp_seconds)", len(runs))
            for name, exporter in runs.items():
                _log(exporter, NAN)
                at.page(name, "RLNotANumber")
            runs["moved"].close()
            stack.enter_context(exporting(ports["moved to"], "moved"))
            both_find(firing, 1)  # that of the old attempt has ended with it
        stopped = time.monotonic()
        eventually(lambda: time.monotonic() > stopped + UNSEEN + 2)
        servers = replicas(stack)
        both_find(f"count(time() - rl:evaluating_since_timestamp_seconds > {UNSEEN})", 1)
        both_find(firing, 1)

        for run in runs:
            assert len(at.told(run)) == 1
            assert at.pages(run) == {"RLNotANumber": "firing"}
        assert len(at.incidents()) == 2
