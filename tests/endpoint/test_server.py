"""The turns of the endpoint's thread, which leaves the cores to the training: who pays, and who is next."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rlexporter.endpoint import turns
from rlexporter.endpoint.turns import BURST_SECONDS, KNOWN_WEIGHT, SHARE, Host, Hosts, Turns, network


@dataclass(eq=False)
class Someone:
    """A connection of a client at some host."""

    host: Host
    over: bool = False
    trusted: bool = False
    spent: float = 0.0
    asks: bool = False
    waited: float = 0.0

    def served(self, waited: float) -> None:
        self.waited += waited


@dataclass
class Thread:
    """A thread whose time goes by as the test says."""

    guarded: bool = True
    now: float = 0.0
    used: float = 0.0
    timers: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = Turns(
            lambda: self.now,
            lambda: self.used,
            lambda seconds, call: self.timers.append((self.now + seconds, call)),
            guarded=self.guarded,
        )

    def work(self, seconds: float) -> None:
        """Use a core for some time."""
        self.now, self.used = self.now + seconds, self.used + seconds

    def go_on(self, until: float) -> None:
        """Let time go by, with what was to be done then."""
        while self.timers and min(self.timers)[0] <= until:
            at = min(range(len(self.timers)), key=lambda place: self.timers[place][0])
            when, call = self.timers.pop(at)
            self.now = max(self.now, when)
            call()
        self.now = max(self.now, until)


def _flood(thread: Thread, clients: list[Someone], seconds: float, cost: float = 0.005) -> dict[Someone, float]:
    """Let each of ``clients`` ask again as soon as it had its turn; return what each has got."""
    got: dict[Someone, float] = dict.fromkeys(clients, 0.0)
    until = thread.now + seconds

    def ask(client: Someone) -> None:
        def work() -> None:
            thread.work(cost)
            got[client] += cost
            if thread.now < until:
                thread.timers.append((thread.now, lambda: ask(client)))

        thread.turns.ask(client, work)

    for client in clients:
        ask(client)
    thread.go_on(until)
    return got


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
def test_whoever_asks_for_how_much_gets_a_tenth_of_a_core(guarded: bool, trusted: bool) -> None:
    """After the first seconds, which may be used at once; who asks for less never waits."""
    thread = Thread(guarded)
    host = thread.turns.hosts.at("10.0.0.1", 0)
    got = _flood(thread, [Someone(host, trusted=trusted) for _ in range(20)], 300)

    assert sum(got.values()) == pytest.approx(BURST_SECONDS + SHARE * 300, rel=0.05)
    assert max(got.values()) < 1.3 * min(got.values())
    thread = Thread(guarded)
    modest = Someone(host, trusted=trusted)
    for second in range(100):
        thread.now = float(second)
        thread.turns.ask(modest, lambda: thread.work(0.05))
        assert not modest.asks
    assert not thread.timers


@pytest.mark.parametrize("guarded", [False, True])
def test_together_they_get_no_more_than_both_tenths(guarded: bool) -> None:
    """Strangers and trusted ones where there is a token; without one all share a tenth."""
    thread = Thread(guarded)
    host = thread.turns.hosts.at("10.0.0.1", 0)
    clients = [Someone(host, trusted=trusted) for trusted in (False, True) for _ in range(10)]
    got = _flood(thread, clients, 300)

    budgets = 2 if guarded else 1
    assert sum(got.values()) == pytest.approx(budgets * (BURST_SECONDS + SHARE * 300), rel=0.05)


def test_who_is_trusted_does_not_wait_for_strangers() -> None:
    """However many they are, also at the same address."""
    thread = Thread()
    host = thread.turns.hosts.at("10.0.0.1", 0)
    ours, answered = Someone(host, trusted=True), list[float]()

    def ask() -> None:
        answered.append(thread.now)
        thread.turns.ask(ours, lambda: thread.work(0.01))
        thread.timers.append((thread.now + 1.0, ask))

    thread.timers.append((30.0, ask))
    _flood(thread, [Someone(host) for _ in range(100)], 100)

    assert len(answered) > 60
    assert ours.waited == 0


def test_what_the_trusted_leave_over_is_lent_to_strangers_at_their_address() -> None:
    """To nobody elsewhere, and never so much that they have to wait themselves."""
    thread = Thread()
    known, elsewhere = (thread.turns.hosts.at(f"10.0.0.{number}", 0) for number in range(2))
    ours = Someone(known, trusted=True)

    def ask() -> None:
        known.trusted_at = thread.now
        thread.turns.ask(ours, lambda: thread.work(0.01))
        thread.timers.append((thread.now + 1.0, ask))

    ask()
    clients = [Someone(host) for host in (known, elsewhere) for _ in range(10)]
    got = _flood(thread, clients, 300)
    here, there = (sum(got[each] for each in clients if each.host is host) for host in (known, elsewhere))

    assert ours.waited == 0
    assert here + there + 3.0 == pytest.approx(2 * SHARE * 300 + BURST_SECONDS * (1 + turns.KEPT), rel=0.05)
    assert there < SHARE * 300 / 2
    thread = Thread()
    got = _flood(thread, [Someone(thread.turns.hosts.at("10.0.0.3", 0)) for _ in range(10)], 300)
    assert sum(got.values()) == pytest.approx(SHARE * 300 + BURST_SECONDS, rel=0.05)


@pytest.mark.parametrize("guarded", [False, True])
def test_turns_are_fair_between_addresses(guarded: bool) -> None:
    """One client gets as much as a hundred at another address; those of a known one come first."""
    thread = Thread(guarded)
    alone, crowd, known = (thread.turns.hosts.at(f"10.0.0.{number}", 0) for number in range(3))
    _flood(thread, [Someone(crowd) for _ in range(5)], 60)  # what may be used at once
    known.trusted_at = thread.now
    clients = [Someone(alone), *(Someone(crowd) for _ in range(100)), Someone(known)]
    got = _flood(thread, clients, 600)

    of_crowd = sum(got[client] for client in clients if client.host is crowd)
    assert got[clients[0]] == pytest.approx(of_crowd, rel=0.2)
    assert got[clients[-1]] == pytest.approx(KNOWN_WEIGHT * of_crowd, rel=0.3)


def test_what_it_took_to_come_is_not_the_strangers() -> None:
    """Once somebody has brought the token; a token that is wrong later makes a stranger of him again."""
    thread = Thread()
    someone = Someone(thread.turns.hosts.at("10.0.0.1", 0))
    thread.turns.ask(someone, lambda: thread.work(0.5))
    thread.turns.charge(someone)
    assert thread.turns.strangers.left == pytest.approx(BURST_SECONDS - 0.5 + 0.05)

    thread.turns.trust(someone)
    assert thread.turns.strangers.left == BURST_SECONDS
    assert thread.turns.trusted.left == pytest.approx(BURST_SECONDS - 0.5 + 0.05)
    assert someone.host.known(thread.now)
    thread.turns.trust(someone, False)
    thread.work(0.25)
    thread.turns.charge(None)
    assert thread.turns.strangers.left == pytest.approx(BURST_SECONDS - 0.25 + 0.025)
    assert someone.host.known(thread.now + 800)
    assert not someone.host.known(thread.now + 1000)


def test_who_has_gone_has_no_turn() -> None:
    """And the time in which somebody waits for us is told."""
    thread = Thread()
    host = thread.turns.hosts.at("10.0.0.1", 0)
    flooder, gone, waits = Someone(host), Someone(host), Someone(host)
    thread.turns.ask(flooder, lambda: thread.work(BURST_SECONDS + 1))
    done: list[str] = []
    thread.turns.ask(gone, lambda: done.append("gone"))
    thread.turns.ask(waits, lambda: done.append("waits"))
    assert gone.asks
    gone.over = True
    thread.go_on(60)

    assert done == ["waits"]
    assert 5 < waits.waited < 15
    assert not waits.asks


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        ("nonsense", "nonsense", True),
    ],
)
def test_a_network_of_ipv6_is_one_address(one: str, another: str, same: bool) -> None:
    """Its first 64 bits: each machine has them all."""
    assert (network(one) == network(another)) is same


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known stay."""
    monkeypatch.setattr(turns, "_MOST_HOSTS", 16)
    hosts = Hosts()
    known = hosts.at("10.0.0.1", 0.0)
    known.trusted_at = 5.0
    for number in itertools.islice(itertools.count(), 1000):
        hosts.at(f"10.1.{number // 256}.{number % 256}", float(number))

    assert hosts.at("10.0.0.1", 0.0) is known
    assert len(hosts._hosts) <= 17
