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
from tests.tools import ALERTMANAGERS, GENERATIONS, Prometheus, eventually, free_ports

WELL = {"loss": 0.1, "grad_norm": 1.0}
NAN = {"loss": 0.1, "grad_norm": nan}
HEALTHY = tuple(f"well-{i:02}" for i in range(30))
SCRAPE = max(3, MINUTE // 4)
"""Seconds: one process answers for thirty runs here, twice, and on a busy machine it must not fall behind."""
SEEN = 'count(rl:run_state{state="running"})'


@dataclass
class Watch:
    """One generation of servers that watches runs, and goes away when it is told to."""

    generation: str
    folder: Path
    ports: list[int]
    desk: Desk
    server: Prometheus = field(init=False)
    _open: ExitStack = field(default_factory=ExitStack)

    def begin(self) -> None:
        """Let Prometheus watch."""
        watched = chain(self.generation, self.folder, self.ports, self.desk, scrape=SCRAPE)
        self.server = self._open.enter_context(watched)

    def end(self) -> None:
        """Stop it."""
        self._open.close()


@contextmanager
def watching(folder: Path, ports: list[int]) -> Iterator[list[Watch]]:
    """Both generations, each with a pager of its own."""
    with ExitStack() as stack:
        found = []
        for generation, kind in zip(GENERATIONS, ALERTMANAGERS, strict=True):
            found.append(Watch(generation, folder / generation, ports, stack.enter_context(desk(kind, folder / kind))))
            stack.callback(found[-1].end)
            found[-1].begin()
        yield found


def wait(minutes: float) -> None:
    """So many of the shortened minutes, by the clock."""
    over = time.monotonic() + minutes * MINUTE
    eventually(lambda: time.monotonic() > over, minutes * MINUTE + 60)


@dataclass
class Fleet:
    """Runs that are well, and who watches them."""

    runs: dict[str, Exporter]
    watches: list[Watch]

    def silent(self, minutes: float = UNSEEN / MINUTE + 1) -> None:
        """All runs are seen, and so many minutes later nobody was called."""
        for watch in self.watches:
            eventually(lambda watch=watch: watch.server.value(SEEN) == len(self.runs))
        wait(minutes)
        for watch in self.watches:
            assert watch.server.query('ALERTS{alertstate="firing",severity=~"critical|warning"}') == []
            assert watch.desk.webhook.bodies("/page") == []
            assert watch.desk.webhook.bodies("/chat") == []


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Thirty runs, all well."""
    ports = free_ports(HEALTHY)
    with ExitStack() as stack:
        runs = {run: stack.enter_context(exporting(port, run)) for run, port in ports.items()}
        fleet = Fleet(runs, stack.enter_context(watching(tmp_path_factory.mktemp("fleet"), [*ports.values()])))
        fleet.silent(3)
        yield fleet


@pytest.mark.parametrize(
    "minutes",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in (1, 3)), pytest.param(10, marks=pytest.mark.soak)],
)
def test_prometheus_was_away(fleet: Fleet, minutes: int) -> None:
    """It knows runs that it has not seen for a while, and calls nobody before it had the time to see them."""
    for watch in fleet.watches:
        watch.end()
    wait(minutes)
    for watch in fleet.watches:
        watch.begin()
    fleet.silent()


@pytest.mark.slow
def test_alertmanager_was_away(fleet: Fleet) -> None:
    """For five minutes."""
    for watch in fleet.watches:
        watch.desk.end()
    wait(5)
    for watch in fleet.watches:
        watch.desk.begin()
    fleet.silent()


@pytest.mark.slow
def test_a_network_was_away(fleet: Fleet) -> None:
    """Two and a half minutes, for six runs."""
    cut = [fleet.runs[run] for run in HEALTHY[:6]]
    for exporter in cut:
        exporter.close()
    wait(2.5)
    for exporter in cut:
        exporter.start()
    fleet.silent()


@pytest.mark.slow
def test_an_exporter_was_restarted(fleet: Fleet) -> None:
    """In another process with the same name, where the old one was killed two minutes ago."""
    port = fleet.runs[HEALTHY[-1]].port or 0
    fleet.runs[HEALTHY[-1]].close()
    wait(2)
    with exporting(port, HEALTHY[-1]):
        fleet.silent()


@pytest.mark.slow
def test_it_would_have_been_heard(fleet: Fleet) -> None:
    """Who was away calls as ever."""
    run = HEALTHY[10]
    fleet.runs[run].log(NAN)
    for watch in fleet.watches:
        assert watch.desk.page(run, "RLGradientNonFinite").labels["severity"] == "critical"


SICK, SIXTH = tuple(f"sick-{i}" for i in range(5)), "sixth"
AT_ONCE = tuple(f"once-{i:02}" for i in range(20))
DEAD, OVER = ("died of NaN", "killed"), "recovered"
CUT = {**WELL, "completions/clipped_ratio": 0.95}
UNCUT = {**WELL, "completions/clipped_ratio": 0.0}

LONG = pytest.mark.timeout(1500 + 40 * MINUTE)
"""The trouble lasts for more than half an hour, whatever a minute is here."""


@dataclass
class Trouble:
    """What both generations told of runs that were sick for half an hour."""

    watches: list[Watch]
    sixth: float
    """When the sixth became sick."""


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trouble]:
    """Five runs are sick, twenty elsewhere at once, two are dead in a third cluster; half an hour later a sixth."""
    clusters = {"five": (*SICK, SIXTH, "calm"), "twenty": AT_ONCE, "dead": (*DEAD, OVER)}
    ports = free_ports(run for runs in clusters.values() for run in runs)
    with ExitStack() as stack:
        runs = {
            run: stack.enter_context(exporting(ports[run], run, labels={"cluster": cluster}))
            for cluster, names in clusters.items()
            for run in names
        }
        watches = stack.enter_context(watching(tmp_path_factory.mktemp("trouble"), [*ports.values()]))
        everywhere(watches, f"{SEEN} == {len(runs)}")
        for line in (*[UNCUT] * 6, *[CUT] * 10):
            runs[OVER].log(line)
        for run in (*SICK, *AT_ONCE, DEAD[0]):
            runs[run].log(NAN)
        runs[DEAD[0]].end(RuntimeError("probability tensor contains nan"))
        everywhere(watches, f'rl:run_state{{run="{DEAD[0]}",state="failed"}}')
        everywhere(watches, f'ALERTS{{run="{OVER}",severity="critical",alertstate="firing"}}')
        for run in DEAD:
            runs[run].close()
        for _ in range(20):
            runs[OVER].log(UNCUT)
        wait(30)
        began = time.time()
        runs[SIXTH].log(NAN)
        for watch in watches:
            watch.desk.page(SIXTH, "RLGradientNonFinite")
        yield Trouble(watches, began)


def everywhere(watches: list[Watch], expression: str) -> None:
    """Wait until both find something."""
    for watch in watches:
        eventually(lambda watch=watch: watch.server.query(expression))


@LONG
@pytest.mark.soak
def test_the_sixth_is_paged_by_name(trouble: Trouble) -> None:
    """Within two minutes, although five of its cluster are sick; of those there was one page, which named them."""
    for watch in trouble.watches:
        page = watch.desk.page(SIXTH, "RLGradientNonFinite")
        assert page.at - trouble.sixth < 2 * MINUTE + SLACK
        assert page.description == f"Run {SIXTH}, step 2: 1 NaN or infinite value."
        assert set(watch.desk.pages(SIXTH)) == {"RLGradientNonFinite"}
        for run in SICK:
            assert watch.desk.pages(run) == {MANY_RUNS.alert: "firing"}
        titles = [each for each in watch.desk.incidents().values() if "] five" in each[0] or "(five)" in each[0]]
        assert sorted(each[-1] for each in titles) == [
            f"[critical] five: {MANY_RUNS.alert}: {', '.join(SICK)}",
            f"[critical] {SIXTH} (five): RLGradientNonFinite",
        ]


@LONG
@pytest.mark.soak
def test_twenty_at_once_are_one_page(trouble: Trouble) -> None:
    """It names ten."""
    ten = ", ".join(AT_ONCE[:10])
    for watch in trouble.watches:
        (titles,) = [each for each in watch.desk.incidents().values() if "twenty" in each[0]]
        assert titles[-1] == f"[critical] twenty: {MANY_RUNS.alert}: {ten} and 10 more"
        for run in AT_ONCE:
            assert watch.desk.pages(run) == {MANY_RUNS.alert: "firing"}


@LONG
@pytest.mark.soak
def test_dead_runs_stay_open(trouble: Trouble) -> None:
    """At a pager that closes incidents when it hears that they are resolved; the run that recovered is closed."""
    for watch in trouble.watches:
        dead = {title for titles in watch.desk.incidents().values() for title in titles if "(dead)" in title}
        assert dead == {
            f"[critical] {DEAD[0]} (dead): RLGradientNonFinite",
            f"[critical] {DEAD[1]} (dead): RLRunVanished",
        }
        assert watch.desk.pages(OVER) == {"RLTruncation": "resolved"}
