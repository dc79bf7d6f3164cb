"""Scrapers: who scrapes, how often, and who has not seen the final state yet. Pure: times are arguments."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

_T = TypeVar("_T")

RECENT_SECONDS = 300.0
"""Age of a last fetch after which its scraper is not waited for."""

_MAX_FETCHES = 4096
_UNKNOWN_INTERVAL = 6.0
"""The interval of a scraper that came once: an ending process waits 15 seconds for whoever calls itself a collector."""
_AGENTS = ("Prometheus/", "vmagent", "VictoriaMetrics", "OpenTelemetry", "otelcol", "Grafana", "telegraf", "Datadog")


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
    """A client that came more than once, or that calls itself a collector.

    ``last`` is when it asked for the last answer that it has taken; minus infinity if it has taken none.
    """

    last: float
    interval: float


class Fetches:
    """The fetches of the last minutes, bounded."""

    def __init__(self) -> None:
        self.total = 0
        self._recent: deque[Fetch] = deque(maxlen=_MAX_FETCHES)

    def add(self, fetch: Fetch) -> None:
        self.total += 1
        self._recent.append(fetch)

    def scrapers(self, now: float) -> list[Scraper]:
        """Return all recent scrapers; ``now`` is of the monotonic clock.

        Two servers with the same address and User-Agent are told apart by their connections, if these are kept alive: a
        single fetch during another connection's life is another server's, any other one is the same server with a new
        connection. A single fetch by anything but a known collector is a person with curl.
        """
        recent = [fetch for fetch in tuple(self._recent) if now - fetch.time <= RECENT_SECONDS]
        connections = _grouped(recent, lambda fetch: (fetch.host, fetch.agent, fetch.port)).values()
        lasting = [fetches for fetches in connections if len(fetches) > 1]
        spans = _grouped(lasting, lambda fetches: (fetches[0].host, fetches[0].agent))
        single = [fetches[0] for fetches in connections if len(fetches) == 1]
        single = [fetch for fetch in single if _is_another(fetch, spans.get((fetch.host, fetch.agent), []))]
        senders = _grouped(single, lambda fetch: (fetch.host, fetch.agent)).values()
        known = [fetches for fetches in senders if len(fetches) > 1 or fetches[0].agent.startswith(_AGENTS)]
        return [_scraper(fetches) for fetches in (*lasting, *known)]


def patience(scrapers: Iterable[Scraper], final: float, limit: float, scrapes: float) -> float:
    """Return the most seconds to wait for those of ``scrapers`` that have taken no answer of ``final`` or later.

    These are ``scrapes`` times their longest interval, up to ``limit``.
    """
    intervals = [scraper.interval for scraper in scrapers if scraper.last < final]
    return min(limit, scrapes * max(intervals, default=0.0))


def _scraper(fetches: list[Fetch]) -> Scraper:
    gaps = [later.time - earlier.time for earlier, later in pairwise(fetches)]
    taken = [fetch.time for fetch in fetches if fetch.taken]
    return Scraper(max(taken, default=-math.inf), max(gaps[-5:], default=_UNKNOWN_INTERVAL))


def _is_another(fetch: Fetch, lasting: list[list[Fetch]]) -> bool:
    """Tell whether ``fetch`` came during one of its sender's ``lasting`` connections; True if there are none."""
    return not lasting or any(fetches[0].time < fetch.time < fetches[-1].time for fetches in lasting)


def _grouped(items: Iterable[_T], key: Callable[[_T], Hashable]) -> dict[Hashable, list[_T]]:
    groups: dict[Hashable, list[_T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
