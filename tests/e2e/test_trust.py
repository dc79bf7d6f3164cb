"""A fleet that is well under servers that come and go: nobody is called. A fleet that is not: who is, and for how long.

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
from rlexporter.catalog import MANY_RUNS
from tests.e2e.paging import MINUTE, SLACK, UNSEEN, Desk, chain, desk, exporting
from tests.tools import Prometheus, eventually, free_ports

pytestmark = pytest.mark.waits

WELL = {"loss": 0.1, "grad_norm": 1.0}
NAN = {"loss": 0.1, "grad_norm": nan}
HEALTHY = tuple(f"well-{i:02}" for i in range(20))
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
    """Twenty runs are well, and servers, a network and a process come and go; a NaN would have been heard."""
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
        runs[HEALTHY[10]].log(NAN)
        assert watch.desk.page(HEALTHY[10], "RLGradientNonFinite").labels["severity"] == "critical"


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
DEAD, OVER = ("died of NaN", "killed"), "recovered"
CLUSTERS = {"five": (*SICK, SIXTH, "calm"), "twenty": AT_ONCE, "dead": (*DEAD, OVER)}
CUT = {**WELL, "completions/clipped_ratio": 0.95}
UNCUT = {**WELL, "completions/clipped_ratio": 0.0}


@pytest.mark.soak
@pytest.mark.timeout(1500 + 40 * MINUTE)  # the trouble lasts for more than half an hour, whatever a minute is here
def test_half_an_hour_of_trouble(tmp_path: Path) -> None:
    """Five runs are sick, twenty elsewhere at once, two are dead in a third cluster; half an hour later a sixth."""
    ports = free_ports(run for names in CLUSTERS.values() for run in names)
    with ExitStack() as stack:
        runs = {
            run: stack.enter_context(exporting(ports[run], run, labels={"cluster": cluster}))
            for cluster, names in CLUSTERS.items()
            for run in names
        }
        watch = stack.enter_context(watching(tmp_path, [*ports.values()]))
        watch.finds(f"{SEEN} == {len(runs)}")
        for line in (*[UNCUT] * 6, *[CUT] * 10):
            runs[OVER].log(line)
        for run in (*SICK, *AT_ONCE, DEAD[0]):
            runs[run].log(NAN)
        runs[DEAD[0]].end(RuntimeError("probability tensor contains nan"))
        watch.finds(f'rl:run_state{{run="{DEAD[0]}",state="failed"}}')
        watch.finds(f'ALERTS{{run="{OVER}",severity="critical",alertstate="firing"}}')
        for run in DEAD:
            runs[run].close()
        for _ in range(20):
            runs[OVER].log(UNCUT)
        wait(30)
        began = time.time()
        runs[SIXTH].log(NAN)
        _the_sixth_is_paged_by_name(watch.desk, began)
        _twenty_at_once_are_one_page(watch.desk)
        _dead_runs_stay_open(watch.desk)


def _the_sixth_is_paged_by_name(at: Desk, began: float) -> None:
    """Within two minutes, although five of its cluster are sick; of those there was one page, which named them."""
    page = at.page(SIXTH, "RLGradientNonFinite")
    assert page.at - began < 2 * MINUTE + SLACK
    assert page.description == f"Run {SIXTH}, step 2: 1 NaN or infinite value."
    assert set(at.pages(SIXTH)) == {"RLGradientNonFinite"}
    assert [at.pages(run) for run in SICK] == [{MANY_RUNS.alert: "firing"}] * len(SICK)
    titles = [each for each in at.incidents().values() if "] five" in each[0] or "(five)" in each[0]]
    assert sorted(each[-1] for each in titles) == [
        f"[critical] five: {MANY_RUNS.alert}: {', '.join(SICK)}",
        f"[critical] {SIXTH} (five): RLGradientNonFinite",
    ]


def _twenty_at_once_are_one_page(at: Desk) -> None:
    """It names ten."""
    ten = ", ".join(AT_ONCE[:10])
    (titles,) = [each for each in at.incidents().values() if "twenty" in each[0]]
    assert titles[-1] == f"[critical] twenty: {MANY_RUNS.alert}: {ten} and 10 more"
    assert [at.pages(run) for run in AT_ONCE] == [{MANY_RUNS.alert: "firing"}] * len(AT_ONCE)


def _dead_runs_stay_open(at: Desk) -> None:
    """At a pager that closes incidents when it hears that they are resolved; the run that recovered is closed."""
    assert {title for titles in at.incidents().values() for title in titles if "(dead)" in title} == {
        f"[critical] {DEAD[0]} (dead): RLGradientNonFinite",
        f"[critical] {DEAD[1]} (dead): RLRunVanished",
    }
    assert at.pages(OVER) == {"RLTruncation": "resolved"}
