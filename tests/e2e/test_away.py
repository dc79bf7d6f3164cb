"""A real Prometheus that goes away: what it did not see end is a warning, and what it saw vanish is a page.

Minutes are shortened as `tests.e2e.paging` says. `tests/alerts/test_unseen_ends.py` has many more cases, in promtool.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.paging import AWAY, MINUTE, UNSEEN, chain, desk, exporting
from tests.tools import eventually, free_ports

pytestmark = [pytest.mark.waits, pytest.mark.slow]

RUNS = ("trains", "gone before", "ends meanwhile", "gone after")
SEEN = 'count(rl:run_state{state="running"})'


def wait(seconds: float) -> None:
    """So long, by the clock."""
    over = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > over, seconds + 60)


def test_ends_around_an_absence(tmp_path: Path) -> None:
    """A run that ends while nobody is there is told in the chat; one that was seen to vanish pages."""
    ports = free_ports(RUNS)
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk"))
        runs = {run: stack.enter_context(exporting(port, run)) for run, port in ports.items()}
        with chain("3", tmp_path / "prometheus", [*ports.values()], at) as server:
            eventually(lambda: server.value(SEEN) == len(RUNS))
            wait(2 * MINUTE)
            runs["gone before"].close()
            eventually(lambda: server.query(f'up{{instance="127.0.0.1:{ports["gone before"]}"}} == 0'))
            wait(4)
        runs["ends meanwhile"].close()
        wait(max(AWAY, 3 * MINUTE) + 2)
        server = stack.enter_context(chain("3", tmp_path / "prometheus", [*ports.values()], at))
        eventually(lambda: server.value("count(up == 1)") == 2)
        wait(2)
        runs["gone after"].close()

        at.page("gone before", "RLRunVanished")
        at.page("gone after", "RLRunVanished")
        (unseen,) = eventually(lambda: at.told("ends meanwhile", path="/chat"))
        assert unseen.labels["alertname"] == "RLRunVanished"
        assert unseen.labels["severity"] == "warning"
        assert "it was training when Prometheus went away, and gone when it was back." in unseen.description
        assert at.pages("ends meanwhile") == {}
        assert at.pages("trains") == {}
        assert at.told("trains", path="/chat") == []
        assert [each for run in RUNS for each in at.told(run, status="resolved", path="/chat")] == []


def test_one_of_two_is_away(tmp_path: Path) -> None:
    """The other one sees the run vanish: that is the page, and no message says that nobody saw it."""
    ports = free_ports(("killed", "trains"))
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk"))
        runs = {run: stack.enter_context(exporting(port, run)) for run, port in ports.items()}
        stays = stack.enter_context(chain("3", tmp_path / "stays", [*ports.values()], at, replica="a"))
        with chain("3", tmp_path / "goes", [*ports.values()], at, replica="b") as goes:
            eventually(lambda: goes.value(SEEN) == stays.value(SEEN) == len(ports))
            wait(2 * MINUTE)
        runs["killed"].close()
        wait(max(AWAY, 3 * MINUTE) + 2)
        goes = stack.enter_context(chain("3", tmp_path / "goes", [*ports.values()], at, replica="b"))
        at.page("killed", "RLRunVanished")
        eventually(lambda: goes.query('ALERTS{alertname="RLRunVanished",alertstate="firing",run="killed"}'))
        wait(UNSEEN)
        assert at.pages("killed") == {"RLRunVanished": "firing"}
        assert at.told("killed", path="/chat") == []
        assert at.pages("trains") == {}
        assert at.told("trains", path="/chat") == []
