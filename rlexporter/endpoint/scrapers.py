"""Scrapers: who scrapes, how often, and who has not seen the final state yet. Pure: times are arguments.

A scraper that comes back takes the final state and ends the wait, so waiting for it is dear only where it never comes.
That it calls itself a collector tells the two apart: a Prometheus that does not come is being restarted or cut off, and
comes back within minutes; a loop of curl that does not come was stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

RECENT_SECONDS = 300.0
"""How long before the final state a scraper may have come last and still be waited for."""

_MAX_SENDERS = 64
_MAX_FETCHES = 512
"""Fetches of a sender that are kept: more than a pair with one address makes within `RECENT_SECONDS`, one a second."""
_UNKNOWN_INTERVAL = 6.0
"""The interval of a scraper that came once."""
_SCRAPES, _HURRIED_SCRAPES = 2.5, 2.0
"""The intervals for which those are waited for that are there but do not take the final state, or may have left."""
_TRIES = 2
"""How often a collector has to come and not take the final state to be there: one try may have been cut off."""
_STEADY = 2.5
"""How many times the smallest gap the largest one may be in a loop; a person who looks now and then has others."""
_COLLECTORS = (
    "prometheus/",
    "vm_promscrape",  # VictoriaMetrics and vmagent
    "vmagent",
    "victoriametrics",
    "opentelemetry",
    "otelcol",
    "grafana",
    "alloy/",
    "telegraf",
    "datadog",
)
"""How collectors call themselves, in small letters."""


@dataclass(slots=True)
class Fetch:
    """A scrape that is answered. ``time`` is when it was asked for, before the answer was made.

    ``port`` is the scraper's, which stays the same while its connection is kept alive. ``taken`` is True once all of
    the answer was handed over: only then has the scraper seen it.
    """

    time: float
    host: str
    port: int
    agent: str
    taken: bool = False

    def take(self) -> None:
        """Note that all of the answer was handed over."""
        self.taken = True


@dataclass(frozen=True, slots=True)
class Scraper:
    """A client that calls itself a ``collector``, or that comes in a loop.

    ``asked`` is when it came last, and ``interval`` the largest of its last gaps. Since the final state it has come
    ``tries`` times, and ``has_taken`` it or not.
    """

    asked: float
    interval: float
    collector: bool
    tries: int
    has_taken: bool

    def until(self, final: float, limit: float, *, hurries: bool) -> float:
        """Return the time until which this one is waited for; see `patience`."""
        if self.has_taken:
            return final
        may_be_away = self.collector and self.tries < _TRIES and not hurries
        since = final if self.collector or self.tries else self.asked
        scrapes = _HURRIED_SCRAPES if hurries else _SCRAPES
        return final + limit if may_be_away else min(final + limit, since + scrapes * self.interval)


class Fetches:
    """The last fetches of each sender, bounded. One thread adds; any may ask."""

    def __init__(self) -> None:
        self.total = 0
        self._senders: dict[tuple[str, str], deque[Fetch]] = {}

    def add(self, fetch: Fetch) -> None:
        """Keep a fetch; collectors are forgotten last, however many others come."""
        self.total += 1
        sender = (fetch.host, fetch.agent)
        if sender not in self._senders and len(self._senders) >= _MAX_SENDERS:
            del self._senders[min(self._senders, key=lambda each: (_collects(each[1]), self._senders[each][-1].time))]
        self._senders.setdefault(sender, deque(maxlen=_MAX_FETCHES)).append(fetch)

    def scrapers(self, final: float) -> list[Scraper]:
        """Return all scrapers that came shortly before ``final`` or later, a time of the monotonic clock."""
        found = []
        for (_, agent), kept in list(self._senders.items()):
            collector = _collects(agent)
            for fetches in _servers(fetch for fetch in tuple(kept) if fetch.time >= final - RECENT_SECONDS):
                if collector or _is_loop(fetches):
                    since = [fetch for fetch in fetches if fetch.time >= final]
                    has_taken = any(fetch.taken for fetch in since)
                    interval = _interval(fetches)
                    found.append(Scraper(fetches[-1].time, interval, collector, len(since), has_taken))
        return found


def patience(scrapers: Iterable[Scraper], final: float, now: float, limit: float, *, hurries: bool = False) -> float:
    """Return the most seconds to wait, from ``now`` on, for those that have not taken what is served since ``final``.

    A collector is waited for until ``limit`` seconds after that: its turn is still to come, or it misses it and is
    away. One that comes again and again and does not take its answer has two and a half of its intervals to do so. So
    has a loop since it came last, for it may have been stopped. With ``hurries`` nobody has more than two intervals.
    """
    ends = [each.until(final, limit, hurries=hurries) for each in scrapers]
    return max(0.0, max(ends, default=now) - now)


def _collects(agent: str) -> bool:
    return agent.lower().startswith(_COLLECTORS)


def _servers(fetches: Iterable[Fetch]) -> list[list[Fetch]]:
    """Return the fetches of each server among those of one address and User-Agent, in the order of time.

    Connections at the same time are of different servers. One that begins after another has fetched for the last time
    goes on with that: a server that was restarted, or whose connection broke, is the same one.
    """
    connections: dict[int, list[Fetch]] = {}
    for fetch in fetches:
        connections.setdefault(fetch.port, []).append(fetch)
    servers: list[list[Fetch]] = []
    for connection in connections.values():
        begin = connection[0].time
        idle = [each for each in servers if each[-1].time < begin]
        if idle:
            min(idle, key=lambda each: _unlikely(each, begin)).extend(connection)
        else:
            servers.append(connection)
    return servers


def _unlikely(server: Sequence[Fetch], time: float) -> tuple[bool, float]:
    """Return an order of servers by how unlikely it is that one connects at ``time``: best the one that was just due.

    Where none is due, it is the one that comes next.
    """
    late = time - server[-1].time - 0.8 * _interval(server)
    return late < 0, abs(late)


def _interval(fetches: Sequence[Fetch]) -> float:
    return max(_gaps(fetches), default=_UNKNOWN_INTERVAL)


def _is_loop(fetches: Sequence[Fetch]) -> bool:
    gaps = _gaps(fetches)
    return bool(gaps) and max(gaps) <= _STEADY * min(gaps)


def _gaps(fetches: Sequence[Fetch]) -> list[float]:
    """Return the seconds between the last fetches."""
    return [later.time - earlier.time for earlier, later in pairwise(fetches[-6:])]
