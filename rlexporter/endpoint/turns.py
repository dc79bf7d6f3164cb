"""Who is served when, by one thread that is to leave the cores to the training. Pure: clocks and timers are arguments.

Strangers share a tenth of a core, and those who have brought the token share another. A request, and what it took to
come so far, is charged to whoever made it. Who finds a budget used up waits for a turn, and keeps nobody else waiting.
Turns are fair between addresses, and one at which the token was brought lately has more of them: it also has what those
with the token leave over. So a scraper is answered whose address is that of an attacker, behind one proxy or on one
machine. Without a token all share one tenth, and who has fetched something counts as who has brought it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

SHARE = 0.1
"""The share of a core that a budget gains, on average."""
BURST_SECONDS = 2.0
"""The seconds of a core that may be used at once, after a rest."""
SOON_SECONDS = 0.05
"""The longest time from one look at a budget that is used up to the next."""
KEPT = 0.5
"""The part of `BURST_SECONDS` that those with the token keep; what they have beyond it is lent to their addresses."""
_SOONEST_SECONDS = 0.01
_TURNS_AT_ONCE = 8
"""Turns after which whatever else has come is looked at."""
_KNOWN_SECONDS = 900.0
"""How long an address is known, after somebody there has brought the token."""
KNOWN_WEIGHT = 8.0
"""How many times the turns of an unknown address a known one has, where both wait."""
_FORGET_SECONDS = 10.0
"""Within this time two thirds of what an address has used is forgotten."""
_MOST_HOSTS = 1024


class Host:
    """The clients of one address: what they have used lately, and when one of them last was trusted."""

    __slots__ = ("_at", "_used", "trusted_at")

    def __init__(self) -> None:
        self.trusted_at = -math.inf
        self._used = 0.0
        self._at = 0.0

    def use(self, seconds: float, now: float) -> None:
        """Add to what was used; less than nothing takes it back."""
        self._used = max(self._used * math.exp((self._at - now) / _FORGET_SECONDS) + seconds, 0.0)
        self._at = now

    def known(self, now: float) -> bool:
        """Return True if somebody at this address was trusted lately."""
        return now - self.trusted_at < _KNOWN_SECONDS

    def weight(self, now: float) -> float:
        """Return by how much more than others these clients may have."""
        return KNOWN_WEIGHT if self.known(now) else 1.0

    def load(self, now: float) -> float:
        """Return what was used lately, for its weight: the next turn is that of the least."""
        return self._used * math.exp((self._at - now) / _FORGET_SECONDS) / self.weight(now)


class Hosts:
    """The addresses that have come lately, a bounded number."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}

    def at(self, address: str, now: float) -> Host:
        """Return those at ``address``, or in its network of IPv6, of which each machine has a whole one."""
        name = network(address)
        if name not in self._hosts:
            if len(self._hosts) >= _MOST_HOSTS:  # the known ones stay, and of all others the busiest
                worth = sorted(self._hosts.items(), key=lambda pair: (pair[1].trusted_at, pair[1].load(now)))
                self._hosts = dict(worth[_MOST_HOSTS // 2 :])
            self._hosts[name] = Host()
        return self._hosts[name]


@lru_cache(maxsize=_MOST_HOSTS)
def network(address: str) -> str:
    """Return what tells clients apart: an address of IPv4, or the first 64 bits of one of IPv6."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped) if found.ipv4_mapped else f"{found.packed[:8].hex()}::"


class Client(Protocol):
    """A connection, as far as turns are concerned."""

    host: Host
    over: bool
    trusted: bool
    """True if it has brought the token, or where there is none has fetched something."""
    spent: float
    """CPU seconds that were spent on it before it was trusted."""
    asks: bool
    """True while it waits for its turn."""

    def served(self, waited: float) -> None:
        """Note that it has its turn, for which it has waited so many seconds."""


class Line:
    """A budget, and those who wait for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left, self._at = BURST_SECONDS, clock()
        self._waiting: dict[Host, deque[tuple[Client, float, Callable[[], object]]]] = {}

    @property
    def left(self) -> float:
        """CPU seconds that may be used now; below zero nobody has a turn."""
        now = self._clock()
        self._left, self._at = min(BURST_SECONDS, self._left + SHARE * (now - self._at)), now
        return self._left

    @property
    def used_up(self) -> bool:
        """Return True if nobody has a turn now; takes note of no time that has gone by."""
        return self._left + SHARE * (self._clock() - self._at) < 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def use(self, seconds: float) -> None:
        """Take CPU seconds out of the budget; less than nothing gives them back."""
        self._left -= seconds

    def add(self, client: Client, work: Callable[[], object]) -> None:
        """Let ``client`` wait for its turn to have ``work`` done."""
        client.asks = True
        self._waiting.setdefault(client.host, deque()).append((client, self._clock(), work))

    def next(self, known: bool = False) -> tuple[Client, Callable[[], object]] | None:
        """Take out whose turn it is; None if it is nobody's. ``known``: it can only be that of a known address."""
        now = self._clock()
        while hosts := [host for host in self._waiting if not known or host.known(now)]:
            host = min(hosts, key=lambda host: host.load(now))
            client, since, work = self._waiting[host].popleft()
            if not self._waiting[host]:
                del self._waiting[host]
            client.asks = False
            if not client.over:
                client.served(now - since)
                return client, work
        return None


class Turns:
    """The turns of one thread.

    ``clock``: a monotonic one; ``cpu``: the CPU seconds of this thread; ``later``: calls a function after some seconds;
    ``guarded``: True if there is a token, so that who has brought it has a budget apart.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        cpu: Callable[[], float],
        later: Callable[[float, Callable[[], object]], object],
        *,
        guarded: bool,
    ) -> None:
        self.clock = clock
        self.guarded = guarded
        self.hosts = Hosts()
        self.strangers = Line(clock)
        self.trusted = Line(clock) if guarded else self.strangers
        self._cpu = cpu
        self._later = later
        self._payer: Client | None = None
        self._paid = cpu()
        self._timer = False

    def charge(self, client: Client | None) -> None:
        """From now on the thread works for ``client``; None: for strangers of whom nothing is known."""
        spent = -self._paid + (now := self._cpu())
        self._paid, payer, self._payer = now, self._payer, client
        if payer is None:
            self.strangers.use(spent)
            return
        lent = not payer.trusted and self.strangers.used_up and payer.host.known(self.clock()) and self._lends
        (self.trusted if lent else self._line(payer)).use(spent)
        payer.host.use(spent, self.clock())
        if not payer.trusted:
            payer.spent += spent

    def trust(self, client: Client, trusted: bool = True) -> None:
        """Note whether ``client`` may know what it asks for: what it has spent as a stranger is then no stranger's."""
        self.charge(client)
        if trusted:
            client.host.trusted_at = self.clock()
            self.strangers.use(-client.spent)
            self.trusted.use(client.spent)
            client.spent = 0.0
        client.trusted = trusted

    def ask(self, client: Client, work: Callable[[], object]) -> None:
        """Have ``work`` done for ``client``: now, or if its budget is used up or others wait, in its turn."""
        self.charge(client)
        line = self._line(client)
        if line.left >= 0 and not line.waiting:
            work()
            return
        line.add(client, work)
        self._look_later(0.0 if line.left >= 0 else SOON_SECONDS)

    @property
    def _lends(self) -> bool:
        """Return True if those with the token have so much that strangers at their addresses may use some of it."""
        return self.guarded and self.trusted.left > KEPT * BURST_SECONDS

    def _line(self, client: Client) -> Line:
        return self.trusted if client.trusted else self.strangers

    def _next(self, line: Line) -> tuple[Client, Callable[[], object]] | None:
        if line.left >= 0:
            return line.next()
        return line.next(known=True) if line is self.strangers and self._lends else None

    def _look_later(self, seconds: float) -> None:
        if not self._timer:
            self._timer = True
            self._later(min(max(seconds, _SOONEST_SECONDS), SOON_SECONDS), self._look)

    def _look(self) -> None:
        """Give turns to those who wait, those who are trusted first."""
        self._timer = False
        lines = dict.fromkeys((self.trusted, self.strangers))
        for line in lines:
            for _ in range(_TURNS_AT_ONCE):
                turn = self._next(line)
                if turn is None:
                    break
                self.charge(turn[0])
                turn[1]()
                self.charge(turn[0])
        waits = [max(-line.left, 0.0) / SHARE for line in lines if line.waiting]
        if waits:
            self._look_later(min(waits))
