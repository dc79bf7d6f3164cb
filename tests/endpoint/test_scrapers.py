"""Who scrapes, and who is still waited for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rlexporter.endpoint.scrapers import RECENT_SECONDS, Fetch, Fetches, patience

PROMETHEUS, CURL = "Prometheus/3.5.3", "curl/8.14"
FINAL, LIMIT = 1000.0, 150.0
"""When the final state was there, and how long it is served at most."""


def _every(
    interval: float, count: int, *, until: float, port: int = 1, agent: str = PROMETHEUS, taken: bool = True
) -> list[Fetch]:
    """So many fetches, the last one at ``until``."""
    return [Fetch(until - i * interval, "10.0.0.1", port, agent, taken) for i in reversed(range(count))]


def _anew(fetches: Iterable[Fetch]) -> list[Fetch]:
    """The same, each on a connection of its own."""
    return [Fetch(each.time, each.host, 2000 + i, each.agent, each.taken) for i, each in enumerate(fetches)]


def _patience(fetches: Iterable[Fetch], now: float, *, limit: float = LIMIT, hurries: bool = False) -> float:
    """What is waited for at ``now``, which knows no later fetches."""
    found = Fetches()
    for each in sorted(fetches, key=lambda fetch: fetch.time):
        if each.time <= now:
            found.add(each)
    return patience(found.scrapers(FINAL), FINAL, now, limit, hurries=hurries)


@pytest.mark.parametrize("interval", [1.0, 15.0, 60.0, 120.0])
@pytest.mark.parametrize("missed", [0.1, 1.5, 2.0])
@pytest.mark.parametrize("agent", [PROMETHEUS, "vm_promscrape", "vmagent", "GrafanaAgent/v0.40", "Telegraf/1.30"])
def test_a_collector_that_is_away_is_waited_for(agent: str, missed: float, interval: float) -> None:
    """For all of the limit, however many turns it misses, also before the end; until it takes what is final."""
    before = _every(interval, 4, until=FINAL - missed * interval, agent=agent)

    assert _patience(before, FINAL) == LIMIT
    assert _patience(before, FINAL + 149) == 1
    assert _patience(before, FINAL + LIMIT) == 0
    back = Fetch(FINAL + 100, "10.0.0.1", 9, agent)
    assert _patience([*before, back], FINAL + 101) == 49
    back.take()
    assert _patience([*before, back], FINAL + 101) == 0


def test_who_came_once_may_come_every_minute() -> None:
    """Nobody knows yet how often it comes: a run of forty seconds has one scrape of those."""
    assert _patience(_every(60, 1, until=FINAL - 40), FINAL) == LIMIT


def test_the_limit_holds_for_everybody() -> None:
    """A limit of 0 waits for nobody; one that is longer than a scraper is remembered is kept as well."""
    before = _every(15, 4, until=FINAL - 5)

    assert _patience(before, FINAL, limit=0) == 0
    assert _patience(before, FINAL + 500, limit=600) == 100


@pytest.mark.parametrize("agent", [PROMETHEUS, CURL])
def test_who_has_left_makes_no_end_wait(agent: str) -> None:
    """A server that was taken out of the configuration minutes before; and nobody hours after the end."""
    assert _patience(_every(15, 40, until=FINAL - RECENT_SECONDS - 1, agent=agent), FINAL) == 0
    assert _patience(_every(15, 40, until=FINAL - 1, agent=agent), FINAL + 7200) == 0


def test_a_pair_is_waited_for_one_by_one() -> None:
    """Each by its address: the one that is away is waited for although the other one has seen the end."""
    one, other = _every(15, 8, until=FINAL + 5), _every(15, 4, until=FINAL - 70, port=2)
    for each in other:
        each.host = "10.0.0.2"

    assert _patience([*one, *other], FINAL + 6) == LIMIT - 6


@pytest.mark.parametrize("away", [10.0, 70.0])
def test_a_pair_behind_one_address(away: float) -> None:
    """Connections at the same time are two servers; the one that comes back goes on with the one that was away."""
    stays = _every(15, 20, until=FINAL + 110)
    leaves = _every(15, 10, until=FINAL - away, port=2)
    both = [*stays, *leaves]
    assert _patience(both, FINAL + 6) == LIMIT - 6
    assert _patience(both, FINAL + 96) == LIMIT - 96
    for at in (96.0, 100.0):
        back = Fetch(FINAL + at, "10.0.0.1", 3, PROMETHEUS, taken=True)
        assert _patience([*both, back], FINAL + at) == 0, at


def test_a_pair_whose_connections_both_break() -> None:
    """Whichever comes back first, both are waited for until both have come."""
    both = [*_every(15, 8, until=FINAL - 1), *_every(15, 8, until=FINAL - 50, port=2)]
    first = _every(15, 8, until=FINAL + 119, port=3)
    second = Fetch(FINAL + 120, "10.0.0.1", 4, PROMETHEUS, taken=True)

    assert _patience([*both, *first], FINAL + 15) == LIMIT - 15
    assert _patience([*both, *first], FINAL + 119.5) == LIMIT - 119.5
    assert _patience([*both, *first, second], FINAL + 121) == 0


@pytest.mark.parametrize("interval", [5.0, 15.0])
@pytest.mark.parametrize("gap", [0.2, 1.0, 3.7])
def test_a_connection_that_broke_leaves_no_second_scraper(gap: float, interval: float) -> None:
    """A time-out, or a restart, breaks it: however soon the server is back, it is the same one."""
    before = _every(interval, 6, until=FINAL - 100)
    after = _every(interval, 3, until=FINAL - 100 + gap * interval + 2 * interval, port=7)
    last = Fetch(FINAL + 5, "10.0.0.1", 8, PROMETHEUS, taken=True)

    assert _patience([*before, *after], FINAL + 4) == LIMIT - 4
    assert _patience([*before, *after, last], FINAL + 6) == 0


def test_one_that_connects_anew_each_time_is_one() -> None:
    """As a proxy, or a client that keeps no connection alive, makes it look."""
    fetches = _anew(_every(15, 9, until=FINAL + 10))

    assert _patience(fetches, FINAL + 9) == LIMIT - 9
    assert _patience(fetches, FINAL + 11) == 0


@pytest.mark.parametrize("gaps", [(9.0, 21.0, 12.0, 18.0, 15.0), (15.0, 15.0, 30.0, 15.0, 15.0)])
def test_turns_that_are_late_or_lost_change_nothing(gaps: tuple[float, ...]) -> None:
    """A collector whose intervals have jitter, or that lost a turn, is one that comes."""
    times = [FINAL - 3 - sum(gaps[i:]) for i in range(len(gaps) + 1)]
    fetches = [Fetch(at, "10.0.0.1", 1, PROMETHEUS, taken=True) for at in times]

    assert _patience(fetches, FINAL + 1) == LIMIT - 1
    assert _patience([*fetches, Fetch(FINAL + 12, "10.0.0.1", 1, PROMETHEUS, taken=True)], FINAL + 13) == 0


def test_an_answer_that_was_not_taken_does_not_count() -> None:
    """One that was cut off is waited for again: it was killed meanwhile. Who comes and never takes it is given up."""
    before = _every(15, 4, until=FINAL - 5)
    tries = _every(15, 3, until=FINAL + 40, taken=False)

    assert _patience([*before, tries[0]], FINAL + 11) == LIMIT - 11
    assert _patience([*before, *tries[:2]], FINAL + 26) == 2.5 * 15 - 26
    assert _patience([*before, *tries], FINAL + 41) == 0


def test_a_loop_that_was_stopped_makes_no_end_wait() -> None:
    """A person with curl in a loop: two and a half turns since it came last, before the end or after it."""

    def loop(until: float) -> list[Fetch]:
        return _anew(_every(5, 20, until=until, agent=CURL))

    assert _patience(loop(FINAL - 60), FINAL) == 0
    assert _patience(loop(FINAL - 1), FINAL) == 11.5
    assert _patience(loop(FINAL - 1), FINAL + 11.5) == 0
    assert _patience(loop(FINAL + 4), FINAL + 4.5) == 0


@pytest.mark.parametrize("agent", [CURL, "Mozilla/5.0"])
@pytest.mark.parametrize("before", [(1.0,), (200.0, 140.0, 130.0, 5.0)])
def test_a_person_who_looks_now_and_then_is_no_scraper(before: tuple[float, ...], agent: str) -> None:
    """Once, or as it comes."""
    fetches = [Fetch(FINAL - each, "10.0.0.1", 4000 + i, agent, taken=True) for i, each in enumerate(before)]

    assert _patience(fetches, FINAL) == 0


@pytest.mark.parametrize(("interval", "longest"), [(5.0, 10.0), (15.0, 30.0), (60.0, 30.0)])
def test_where_others_wait_nobody_has_more_than_two_turns(interval: float, longest: float) -> None:
    """Whether it is away or not: a rank that has failed holds the others up."""
    before = _every(interval, 4, until=FINAL - 0.5 * interval)

    assert _patience(before, FINAL, limit=30, hurries=True) == longest
    assert _patience(before, FINAL + longest, limit=30, hurries=True) == 0


def test_memory_is_bounded() -> None:
    """However often somebody comes, and under however many names; all are counted."""
    found = Fetches()
    for i in range(20_000):
        found.add(Fetch(float(i), "10.0.0.1", i, "curl"))
        found.add(Fetch(float(i), "10.0.0.1", i, f"curl/{i}"))

    assert found.total == 40_000
    assert len(found._senders) <= 64
    assert max(map(len, found._senders.values())) <= 512


def test_a_collector_is_not_forgotten_for_others() -> None:
    """Someone asks without a pause, under one name or under many, between two scrapes a minute apart."""
    crowd = [Fetch(FINAL - 59 + i / 100, "10.0.0.1", i, CURL if i % 2 else f"curl/{i}") for i in range(5900)]

    assert _patience([*_every(60, 2, until=FINAL - 60), *crowd], FINAL) == LIMIT
