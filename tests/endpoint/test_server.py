"""The endpoint's thread, which leaves the cores to the training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlexporter import Exporter
from rlexporter.endpoint import server
from tests.endpoint.wire import connect, request


def test_whoever_asks_for_how_much_gets_a_tenth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first seconds, which may be used at once; who asks for less never waits."""
    now, used = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: used, sleep=sleep)
    monkeypatch.setattr(server, "time", clock)
    pace = server.Pace()
    pace.begin()
    for _ in range(10_000):  # a flood: each of its requests takes 5 ms
        now, used = now + 0.005, used + 0.005
        pace.keep()

    assert used == pytest.approx(50)
    assert now == pytest.approx(10 * (used - 2), rel=0.02)
    before = now
    for _ in range(1000):  # a request a second, of 50 ms
        now, used = now + 1.0, used + 0.05
        pace.keep()
    assert now == before + 1000


def test_every_request_waits_for_its_turn(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come in one piece too, and the connection itself."""
    kept: list[bool] = []
    monkeypatch.setattr(server.Pace, "keep", lambda _: kept.append(True))
    with connect(exporter) as sock:
        sock.sendall(request("GET", "/livez") * 50 + request("GET", "/livez", "Connection: close"))
        while sock.recv(1 << 16):
            pass
    assert len(kept) >= 51 + 2  # and at least one piece
