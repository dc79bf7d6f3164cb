"""Who scrapes, and who is still waited for."""

from __future__ import annotations

import pytest

from rlexporter.endpoint.scrapers import RECENT_SECONDS, Fetch, Fetches, Scraper, patience

PROMETHEUS = "Prometheus/3.5.3"


def _fetches(*fetches: Fetch) -> Fetches:
    found = Fetches()
    for fetch in sorted(fetches, key=lambda fetch: fetch.time):
        found.add(fetch)
        fetch.take()
    return found


def _every(interval: float, count: int, *, port: int = 1, agent: str = PROMETHEUS, start: float = 0.0) -> list[Fetch]:
    return [Fetch(start + i * interval, "10.0.0.1", port, agent) for i in range(count)]


@pytest.mark.parametrize(
    ("fetches", "now", "expected"),
    [
        pytest.param(_every(15, 4), 50, {Scraper(45, 15)}, id="an interval: the largest of its last gaps"),
        pytest.param(_every(15, 4), 45 + RECENT_SECONDS + 1, set(), id="who did not come for minutes has left"),
        # The same address and the same User-Agent, but two connections.
        pytest.param(
            [*_every(15, 4, port=1), *_every(15, 4, port=2, start=5)],
            60,
            {Scraper(45, 15), Scraper(50, 15)},
            id="a pair behind one address",
        ),
        # Otherwise each of its old connections would be waited for.
        pytest.param(
            [Fetch(15.0 * i, "10.0.0.1", 1000 + i, PROMETHEUS) for i in range(5)],
            65,
            {Scraper(60, 15)},
            id="one that connects anew each time",
        ),
    ],
)
def test_scrapers_are_told_apart(fetches: list[Fetch], now: float, expected: set[Scraper]) -> None:
    """Each is found once."""
    found = _fetches(*fetches).scrapers(now)
    assert (set(found), len(found)) == (expected, len(expected))


@pytest.mark.parametrize(
    ("agent", "count"),
    [("curl/8.0", 0), ("Mozilla/5.0", 0), (PROMETHEUS, 1), ("vmagent", 1), ("OpenTelemetry Collector Contrib", 1)],
)
def test_a_single_fetch_by_a_person_is_no_scraper(agent: str, count: int) -> None:
    """But one by a collector is, with an interval that is not known yet: it is waited for 15 seconds."""
    found = _fetches(Fetch(0, "10.0.0.1", 1, agent)).scrapers(1)

    assert found == [Scraper(0, 6)] * count


def test_memory_is_bounded() -> None:
    """However often somebody comes; all are counted."""
    found = Fetches()
    for i in range(20_000):
        found.add(Fetch(float(i), "10.0.0.1", i, "curl"))

    assert found.total == 20_000
    assert len(found._recent) < 5000


@pytest.mark.parametrize(
    ("scrapers", "limit", "expected"),
    [
        ([], 150, 0),
        ([Scraper(0, 15)], 150, 37.5),
        ([Scraper(0, 15), Scraper(0, 30)], 150, 75),
        ([Scraper(0, 600)], 150, 150),
        ([Scraper(0, 15)], 0, 0),
    ],
)
def test_patience_is_bounded(scrapers: list[Scraper], limit: float, expected: float) -> None:
    """2.5 times the slowest interval, within the limit."""
    assert patience(scrapers, 100.0, limit, 2.5) == expected


def test_an_answer_that_was_not_taken_does_not_count() -> None:
    """Who asked is known, and still waited for."""
    found = Fetches()
    first, last = _every(15, 2)
    found.add(first)
    first.take()
    found.add(last)
    assert found.scrapers(16) == [Scraper(0, 15)]
    last.take()
    assert found.scrapers(16) == [Scraper(15, 15)]


def test_only_those_who_have_not_seen_the_end_are_waited_for() -> None:
    """Each for itself."""
    assert patience([Scraper(10, 15), Scraper(20, 60)], 15, 150, 2.5) == 37.5
    assert patience([Scraper(15, 15), Scraper(20, 60)], 15, 150, 2.5) == 0


@pytest.mark.parametrize("at", [7.0, 62.0, 200.0])
def test_a_scrape_that_failed_leaves_no_second_scraper(at: float) -> None:
    """A time-out breaks the connection: what was fetched once on the next one is the same server's."""
    first = _every(5, 12, port=1, start=0)
    again = _every(5, 12, port=3, start=70)
    found = _fetches(*first, Fetch(62.0, "10.0.0.1", 2, PROMETHEUS), *again)
    assert {scraper.interval for scraper in found.scrapers(130)} == {5.0}

    other = _fetches(*first, Fetch(at, "10.0.0.1", 2, PROMETHEUS), *again).scrapers(210)
    assert (6.0 in {scraper.interval for scraper in other}) is (at == 7.0)
