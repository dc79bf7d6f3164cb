"""Many clients, slow ones and rude ones: none of them costs a scrape, a file too many, or the training its time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import itertools
import math
import re
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.endpoint import app, server
from rlexporter.endpoint.connections import LIMITS, Connection, Connections, Listener, Stage
from rlexporter.endpoint.reception import Reception
from rlexporter.endpoint.turns import Hosts, Turns
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus
from tests.endpoint.test_tls import Files
from tests.endpoint.wire import Answer, accepted, ask, connect, ended, read, readable, request, unsent
from tests.served import errors
from tests.tools import eventually

Reach = Callable[..., socket.socket]

HASTE = 0.4
"""Seconds for a head or an answer, where a test waits for them to be over."""

LOGGED = ("kl", "reward", "grad_norm", "loss", "mine", "rewards/f/mean", "num_tokens", "learning_rate")
ALIKE = {
    *("rl_kl_per_token", "rl_reward_mean", "rl_grad_norm", "rl_loss", "rl_logged_value", "rl_learning_rate"),
    *("rl_reward_function_mean", "rl_step", "rl_steps_total", "rl_tokens_total", "rl_last_log_step"),
    "rl_grad_norm_dist_count",
}
"""The series that have the number of the step where each of these keys is logged with it."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Certificate and key."""
    return Files(tmp_path)


@pytest.fixture(params=["plain", "tls"])
def endpoint(request: pytest.FixtureRequest, files: Files) -> Iterator[tuple[Exporter, Reach]]:
    """An exporter, and a way to connect to it from some address."""
    tls = request.param == "tls"
    context = files.context()
    with Exporter(run="test", port=0, linger=0, **(files.settings() if tls else {})) as exporter:

        def reach(host: str = "127.0.0.1", room: int = 0) -> socket.socket:
            sock = connect(exporter, host, room=room)
            return context.wrap_socket(sock, server_hostname="127.0.0.1") if tls else sock

        yield exporter, reach


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps little of what is sent."""
    monkeypatch.setattr("rlexporter.endpoint.connections._SEND_BUFFER_BYTES", 4096)


@pytest.fixture
def hasten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on nobody gets much time: until then a busy machine may take its own."""

    def begin() -> None:
        for stage in (Stage.HEAD, Stage.ANSWER):
            monkeypatch.setitem(LIMITS, stage, HASTE)

    return begin


def test_slow_clients_do_not_starve_a_scrape(endpoint: tuple[Exporter, Reach], monkeypatch: pytest.MonkeyPatch) -> None:
    """400 that never end a request or a handshake, more than may be kept: who scrapes is answered, and nothing grows.

    So is who comes from elsewhere, and who has scraped before all of them came.
    """
    exporter, reach = endpoint
    monkeypatch.setitem(LIMITS, Stage.HEAD, math.inf)  # who is shut is so because there are too many
    tls, before = str(exporter.url).startswith("https"), _memory()
    begun = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" if tls else b"GET /metrics HTTP/1.1\r\nX: "
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(reach())
        assert scrape(kept)
        for number in range(400):
            stack.enter_context(connect(exporter)).sendall(begun)
            if number % 50 == 0:
                assert scrape(stack.enter_context(reach("127.0.0.2")))
        eventually(lambda: accepted(exporter.port) <= 256, 60)
        assert _memory() - before < 64 << 20
        exporter.log({"reward": 2.5}, step=2)  # an answer that is kept has the count of before
        body = scrape(kept).body
    assert b'rlexporter_scrapes_total{rank="0",run="test"} 10.0' in body
    assert errors(exporter) == 0


def test_closing_does_not_wait_for_slow_clients(
    endpoint: tuple[Exporter, Reach], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are in the middle of, and however long that may take; and nothing is left open."""
    exporter, reach = endpoint
    port = exporter.port
    monkeypatch.setattr("rlexporter.endpoint.endpoint._STOP_SECONDS", 600.0)
    for stage in Stage:
        monkeypatch.setitem(LIMITS, stage, math.inf)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(reach()) for _ in range(20)]
        for sock in idle[:10]:
            assert scrape(sock)
        for sock in idle[10:]:
            sock.sendall(b"GET / HT")
        silent = [stack.enter_context(connect(exporter)) for _ in range(20)]
        eventually(lambda: accepted(port) == 40)
        exporter.close()
        assert accepted(port) == 0
        assert all(ended(sock) for sock in silent)


def test_a_head_has_to_be_sent_in_time(endpoint: tuple[Exporter, Reach], hasten: Callable[[], None]) -> None:
    """From connecting, or from its first byte; who waits for its next scrape may wait longer."""
    exporter, reach = endpoint
    with contextlib.ExitStack() as stack:
        idle, slow, again, mute = (stack.enter_context(reach()) for _ in range(4))
        silent = stack.enter_context(connect(exporter))
        for sock in (idle, again):
            sock.sendall(request())
            assert read(sock)
        again.sendall(b"GET /metr")
        dripping = threading.Thread(target=_drip, args=(slow,))
        dripping.start()
        hasten()
        assert [ended(sock) for sock in (again, mute, silent)] == [True] * 3
        dripping.join()
        idle.sendall(request())
        assert read(idle)
    assert errors(exporter) == 0


def test_an_answer_has_to_be_taken_in_time(endpoint: tuple[Exporter, Reach], hasten: Callable[[], None]) -> None:
    """Many are asked for at once, and none is read: little is kept for that, and not for long."""
    exporter, reach = endpoint
    before = _memory()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(reach(room=4096)).sendall(request() * 300)
        eventually(lambda: accepted(exporter.port) == 20)
        assert unsent(exporter.port) < 20 << 20
        hasten()
        eventually(lambda: accepted(exporter.port) == unsent(exporter.port) == 0)
        assert _memory() - before < 64 << 20
    with reach() as sock:
        assert scrape(sock).status == 200
    assert errors(exporter) == 0


@pytest.mark.usefixtures("little")
def test_the_rest_of_an_answer_has_to_be_taken_in_time(exporter: Exporter, hasten: Callable[[], None]) -> None:
    """However little that is, and whatever was taken before."""
    with connect(exporter, room=4096) as one, connect(exporter, room=4096) as another:
        one.sendall(request() * 50)  # more than fits into the buffers of the kernel, where nobody waits for a reader
        another.sendall(request() * 300)
        taken = 0
        while taken < 200_000:
            taken += len(another.recv(1 << 16))
        hasten()
        eventually(lambda: accepted(exporter.port) == 0)


@pytest.mark.usefixtures("little")
def test_pipelined_requests_are_answered_in_order(endpoint: tuple[Exporter, Reach]) -> None:
    """As many as one likes, by who reads them, be it slowly."""
    exporter, reach = endpoint
    with reach(room=4096) as sock:
        sock.sendall((request() + request("GET", "/nothing")) * 50)
        sock.sendall(request("GET", "/", "Connection: close"))
        eventually(lambda: unsent(exporter.port) > 0)
        text = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", text) == [b"200", b"404"] * 50 + [b"200"]


def test_timers_go_off_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are far enough away at the next quarter of a second, never early; what is waited for soon, at once."""
    monkeypatch.setattr(server, "_BEAT_SECONDS", 0.25)
    with (
        Listener(socket.create_server(("127.0.0.1", 0))) as listener,
        contextlib.closing(server._Loop(listener, None, print, guarded=False)) as loop,
    ):
        now = loop.time()
        asked = [now + 0.06, now + 0.1, now + 10.01]
        late = [loop.call_at(at, lambda: None).when() for at in asked]
        soon = loop.call_at(now + 0.005, lambda: None).when()

    assert all(at <= found < at + 0.25 and found % 0.25 == 0 for at, found in zip(asked, late, strict=True))
    assert soon == now + 0.005


def test_what_is_over_is_forgotten(endpoint: tuple[Exporter, Reach]) -> None:
    """At once, however it ended: nobody waits for the garbage collector, which seldom comes in a training."""
    exporter, reach = endpoint
    kinds = {"H11Protocol", "Gate", "TLSProtocol", "Connection"}
    with reach() as sock:
        assert scrape(sock)
        assert {type(each).__name__ for each in gc.get_objects()} & kinds  # those names are right
    gc.collect()
    gc.disable()
    try:
        for number in range(30):
            with reach() if number % 3 else connect(exporter) as sock:
                sock.sendall(b"nonsense" if number % 3 == 0 else request())
                if number % 3:
                    assert read(sock)
                if number % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: accepted(exporter.port) == 0)
        eventually(lambda: not [each for each in gc.get_objects() if type(each).__name__ in kinds])
    finally:
        gc.enable()


def test_an_answer_does_not_wait_for_a_receipt() -> None:
    """It goes out in pieces, and a kernel that waits between them makes forty milliseconds of each scrape."""
    with (
        Listener(socket.create_server(("127.0.0.1", 0))) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as here,
    ):
        assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_many_may_wait_to_be_accepted() -> None:
    """Who finds the queue full tries again after a second, and again after two more: here nobody has to."""
    with (
        Listener(socket.create_server(("127.0.0.1", 0))) as listener,
        contextlib.closing(asyncio.SelectorEventLoop()) as loop,
        contextlib.ExitStack() as stack,
    ):
        turns = Turns(time.monotonic, time.thread_time, loop.call_later, guarded=False)
        Reception(listener, turns, lambda _: None, lambda _: None).open(loop)
        for number in range(3 * 64):
            sock = stack.enter_context(socket.create_connection(listener.getsockname(), timeout=600))
            assert _sent_again(sock) == 0
            assert listener.queue == number + 1
        loop.remove_reader(listener.fileno())


def _sent_again(sock: socket.socket) -> int:
    """How often the kernel had to send something again, the request to connect too."""
    at = 100  # of `tcpi_total_retrans` in `struct tcp_info`
    found: int = struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + 4), at)[0]
    return found


def test_there_is_room_for_few_where_few_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of what the process may open, and no more than 256."""
    rooms = {}
    for limit in (16, 256, 1024, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        with Listener(socket.create_server(("127.0.0.1", 0))) as listener:
            rooms[limit] = listener.connections.most
    assert list(rooms.values()) == [8, 64, 256, 256]


@pytest.fixture
def come() -> Iterator[tuple[Connections, Callable[..., Any], list[float]]]:
    """Room for four; who comes from a host, and whether there was room for it; the time, which can be set."""
    kept, now, hosts = Connections(4), [1000.0], Hosts()
    ports = itertools.count()
    with contextlib.ExitStack() as stack:

        def come(host: str, *, inside: bool = True, grace: float = 1.0) -> Connection:
            here, there = socket.socketpair()
            stack.enter_context(here)
            stack.enter_context(there)
            connection = Connection(here, (host, next(ports)), hosts.at(host, now[0]))
            connection.since = now[0]
            assert kept.admit(connection, now[0], grace) is not readable(there)
            connection.inside = inside
            return connection

        yield kept, come, now


def _over(*connections: Connection) -> list[bool]:
    return [connection.over for connection in connections]


def test_who_makes_room(come: tuple[Connections, Callable[..., Any], list[float]]) -> None:
    """Of the host with the most, who has owed us something for longest; never who waits for us, nor who is trusted."""
    kept, arrive, now = come
    first = arrive("10.0.0.1")
    first.trusted = True
    kept.place(first)
    now[0] += 10
    second, third, fourth = (arrive("10.0.0.1") for _ in range(3))
    now[0] += 2
    second.asks = True
    fifth = arrive("10.0.0.2")
    assert _over(first, second, third, fourth, fifth) == [False, False, True, False, False]
    sixth = arrive("10.0.0.1")
    assert _over(first, second, fourth, fifth, sixth) == [False, False, True, False, False]
    assert not kept.has_room(now[0], 1.0)
    seventh = arrive("10.0.0.1")  # none owes: it would only take the place of one that has waited longer
    assert _over(first, second, fifth, sixth, seventh) == [False, False, False, False, True]
    eighth = arrive("10.0.0.3")  # but who comes from elsewhere takes that of the newest
    assert _over(first, second, fifth, sixth, eighth) == [False, False, False, True, False]


def test_who_has_met_us_stays_longer(come: tuple[Connections, Callable[..., Any], list[float]]) -> None:
    """Than one whose handshake is not complete, though he is older; and is let go where all have met us."""
    _, arrive, now = come
    first, second, third, fourth = (arrive("10.0.0.1") for _ in range(4))
    first.met = second.met = fourth.met = True
    now[0] += 2
    arrive("10.0.0.1").met = True
    assert _over(first, second, third, fourth) == [False, False, True, False]
    arrive("10.0.0.1")
    assert _over(first, second, fourth) == [True, False, False]


def test_who_is_known_has_more_room(come: tuple[Connections, Callable[..., Any], list[float]]) -> None:
    """Several scrapers of one address stay beside strangers who have an address each."""
    _kept, arrive, now = come
    known = [arrive("10.0.0.1") for _ in range(2)]
    known[0].host.trusted_at = now[0]
    strangers = [arrive(f"10.0.1.{number}") for number in range(2)]
    now[0] += 2
    strangers += [arrive(f"10.0.2.{number}") for number in range(10)]
    assert _over(*known) == [False, False]
    assert _over(*strangers).count(False) == 2


def test_where_all_are_trusted_the_oldest_makes_room(
    come: tuple[Connections, Callable[..., Any], list[float]],
) -> None:
    """Whoever comes next may be trusted too."""
    kept, arrive, now = come
    trusted = []
    for number in range(4):
        now[0] += 1
        trusted.append(arrive(f"10.0.0.{number}"))
        trusted[-1].trusted = True
        kept.place(trusted[-1])
    trusted[0].since = now[0]
    assert kept.has_room(now[0], 1.0)
    assert not arrive("10.0.0.9").over
    assert _over(*trusted) == [False, True, False, False]


def test_who_waits_outside_is_closed(come: tuple[Connections, Callable[..., Any], list[float]]) -> None:
    """Its socket too, and it is forgotten: nobody else has it."""
    kept, arrive, _now = come
    outside = arrive("10.0.0.1", inside=False)
    kept.shut_one(outside)
    assert outside.sock.fileno() == -1
    assert len(kept) == 0
    assert kept.to(outside.address) is None


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each scrape has that is rendered, while the clock stands still."""
    found: list[int] = []
    encode = prometheus.encode

    def noted(snapshot: Snapshot, *rest: Any, **options: Any) -> tuple[bytes, str]:
        if snapshot.samples:
            found.append(len(snapshot.samples))
        return encode(snapshot, *rest, **options)

    monkeypatch.setattr(prometheus, "encode", noted)
    monkeypatch.setattr(app, "time", SimpleNamespace(monotonic=lambda: 1000.0, time=lambda: 1000.0))
    return found


def test_many_scrapers_cost_one_rendering_a_second(exporter: Exporter, rendered: list[int]) -> None:
    """64 at once, in two formats, compressed or not: all get the same, and each is counted."""
    exporter.log({"reward": 1.5}, step=1)
    found = _parallel(exporter, 64, 3)

    assert {answer.status for answer in found} == {200}
    assert (len(found), len(rendered)) == (192, 2)
    zipped = [answer for answer in found if answer.headers.get("content-encoding") == "gzip"]
    assert len(zipped) == 96
    assert b'rl_reward_mean{rank="0",run="test"} 1.5' in gzip.decompress(zipped[0].body)
    exporter.log({"reward": 2.5}, step=2)
    body = ask(exporter).body
    assert b'rl_reward_mean{rank="0",run="test"} 2.5' in body
    assert b'rlexporter_scrapes_total{rank="0",run="test"} 193.0' in body
    assert b"\nrlexporter_errors_total{" not in body


def test_what_is_kept_is_what_is_there_now(
    exporter: Exporter, rendered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was logged is missing from the next scrape, in any format; and nothing is kept for long."""
    formats = ("text/plain", "application/openmetrics-text; version=1.0.0")
    for step in range(3):
        exporter.log({"reward": float(step)}, step=step)
        for accept in formats * 2:
            assert f"{step}.0\n" in _line(ask(exporter, "GET", "/metrics", f"Accept: {accept}"), "rl_reward_mean")
    assert len(rendered) == 6
    few = ask(exporter, "GET", "/metrics?name[]=rl_step&name[]=rl_steps_total")
    names = [line.split("{")[0] for line in few.body.decode().splitlines() if line[0] != "#"]
    assert names == ["rl_step", "rl_steps_total"]
    monkeypatch.setattr("rlexporter.endpoint.app._KEPT_SECONDS", -1)
    counts = [_line(ask(exporter), "rlexporter_scrapes_total") for _ in range(2)]
    assert counts[0] != counts[1]


def test_a_scrape_is_one_moment_of_a_training_that_goes_on(exporter: Exporter) -> None:
    """64 scrapers while every step changes everything without a pause: none is refused, no answer is torn."""
    stop, before = threading.Event(), _memory()

    def train() -> None:
        for step in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1)):
            exporter.log(dict.fromkeys(LOGGED, float(step)), step=step)

    training = threading.Thread(target=train)
    training.start()
    try:
        earlier = eventually(lambda: exporter.snapshot.value("rl_step"))
        found = _parallel(exporter, 64, 4)
        meanwhile = (exporter.snapshot.value("rl_step") or 0) - earlier
    finally:
        stop.set()
        training.join()

    assert meanwhile > 5
    assert {answer.status for answer in found} == {200}
    assert [moments for moments in map(_moments, found) if len(moments) != 1] == []
    assert _moments(ask(exporter)) == {exporter.snapshot.value("rl_step")}
    assert _memory() - before < 128 << 20
    assert errors(exporter) == 0


def scrape(sock: socket.socket) -> Answer:
    """The answer to a scrape on this connection."""
    sock.sendall(request())
    found = read(sock)
    assert found
    return found


def _parallel(exporter: Exporter, clients: int, times: int) -> list[Answer]:
    """What so many clients get at once; every other one compressed, every third in the other format."""
    found: list[Answer] = []
    ready = threading.Barrier(clients)

    def scrape(number: int) -> None:
        headers = ["Accept-Encoding: gzip"] if number % 2 else []
        headers += ["Accept: application/openmetrics-text; version=1.0.0"] if number % 3 else []
        with connect(exporter) as sock:
            sock.settimeout(60)
            ready.wait()
            for _ in range(times):
                sock.sendall(request("GET", "/metrics", *headers))
                answer = read(sock)
                if answer:
                    found.append(answer)

    threads = [threading.Thread(target=scrape, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == clients * times
    return found


def _moments(answer: Answer) -> set[float]:
    """The values of what is alike in one moment."""
    zipped = answer.headers.get("content-encoding") == "gzip"
    text = (gzip.decompress(answer.body) if zipped else answer.body).decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#"]
    found = {name.split("{")[0]: float(value) for name, value in lines}
    return {found[name] for name in ALIKE}


def _line(answer: Answer, series: str) -> str:
    return "".join(line for line in answer.body.decode().splitlines(keepends=True) if line.startswith(series))


def _drip(sock: socket.socket) -> None:
    """Send a head byte by byte, until the connection is ended."""
    with contextlib.suppress(OSError, ssl.SSLError):
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        while True:
            sock.send(b"X")
            if readable(sock, 20) and not sock.recv(100):
                return


def _memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
