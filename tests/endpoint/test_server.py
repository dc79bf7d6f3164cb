"""The endpoint's thread, which leaves the cores to the training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlexporter.endpoint import server


def test_whoever_asks_for_how_much_gets_a_tenth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first seconds, which may be used at once; who asks for less never waits."""
    now, used = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: used, sleep=sleep)
    monkeypatch.setattr(server, "time", clock)
    pace = server._Pace()
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
