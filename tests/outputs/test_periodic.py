"""What is done again and again: when, after what, and how it ends."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from rlexporter import Exporter
from rlexporter.outputs import periodic
from rlexporter.outputs.periodic import Ticker
from tests.tools import eventually


def _alive(name: str) -> bool:
    return any(thread.name == f"rlexporter-{name}" for thread in threading.enumerate())


def test_ticks_at_once_and_when_woken_and_once_more_at_the_end() -> None:
    """And not before its time otherwise."""
    done: list[str] = []
    ticker = Ticker("test", 1000, lambda: done.append("tick"), print, last=lambda: done.append("last"))
    ticker.start()
    eventually(lambda: done == ["tick"])

    ticker.wake()
    eventually(lambda: done == ["tick", "tick"])
    ticker.close()

    assert done == ["tick", "tick", "last"]
    assert not _alive("test")


def test_between_ticks_there_is_a_rest_however_often_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one at first, a longer one while that goes on, and a short one again after a quiet time."""
    monkeypatch.setattr(periodic, "REST_SECONDS", 0.05)
    monkeypatch.setattr(periodic, "LONGEST_REST_SECONDS", 0.2)
    done: list[float] = []

    def tick() -> None:
        done.append(time.monotonic())
        if len(done) < 6:
            ticker.wake()

    ticker = Ticker("test", 1000, tick, print)
    ticker.start()
    eventually(lambda: len(done) == 6)
    eventually(lambda: ticker._rest == 0.05)
    ticker.wake()
    eventually(lambda: len(done) == 7)
    ticker.close()

    gaps = [later - earlier for earlier, later in pairwise(done[:6])]
    assert all(gap > 0.99 * rest for gap, rest in zip(gaps, [0.05, 0.1, 0.2, 0.2, 0.2], strict=True)), gaps


def test_what_wakes_one_that_hangs_is_not_heaped_up() -> None:
    """A disk that hangs for hours costs no memory, and one tick after it."""
    ticks: list[int] = []
    gate = threading.Event()

    def hang() -> None:
        ticks.append(1)
        gate.wait()

    ticker = Ticker("test", 1000, hang, print)
    ticker.start()
    eventually(lambda: ticks)
    for _ in range(10_000):
        ticker.wake()
    assert ticker._woken.qsize() == 1
    gate.set()
    eventually(lambda: len(ticks) == 2)
    ticker.close()
    assert len(ticks) == 2


def test_close_waits_for_no_rest() -> None:
    """It ends what it is told to end, with the last call."""
    done: list[str] = []
    ticker = Ticker("test", 1000, lambda: done.append("tick"), print, last=lambda: done.append("last"))
    ticker._rest = 600.0
    ticker.start()
    eventually(lambda: done)
    ticker.wake()
    ticker.close(60.0)

    assert done == ["tick", "last"]
    assert not _alive("test")


def test_an_error_is_told_and_ends_nothing() -> None:
    """Neither in a tick nor in the last one."""
    errors: list[Exception] = []

    def fail() -> None:
        raise OSError("planted")

    ticker = Ticker("test", 0.01, fail, errors.append, last=fail)
    ticker.start()
    eventually(lambda: len(errors) >= 2)
    ticker.close()

    assert {type(error) for error in errors} == {OSError}
    assert not _alive("test")


def test_one_that_was_never_started_can_be_closed() -> None:
    """Where something else could not be set up: what was made for it is taken back."""
    done: list[str] = []
    Ticker("test", 1, lambda: None, print, last=lambda: done.append("last")).close()

    assert done == ["last"]


def test_stop_waits_for_nothing() -> None:
    """`close` waits, and no longer than was said when it was told to stop."""
    gate = threading.Event()

    def hang() -> None:
        gate.wait()

    ticker = Ticker("test", 1000, lambda: None, print, last=hang)
    ticker.start()
    ticker.stop(0.1)
    ticker.close(600.0)
    assert _alive("test")
    gate.set()
    eventually(lambda: not _alive("test"))


def test_the_outlets_of_an_exporter_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each does its last beside the others, and the page of the run is kept meanwhile."""
    exporter = Exporter(run="a", port=0, linger=0).start()
    met = threading.Barrier(4)
    done: list[str] = []

    def last() -> None:
        met.wait(60.0)
        done.append("last")

    def keep(server: object) -> None:
        met.wait(60.0)
        done.append("page")

    monkeypatch.setattr(exporter, "_keep_page", keep)
    for number in range(3):
        ticker = Ticker(f"test-{number}", 1000, lambda: None, print, last=last, patience=60.0)
        ticker.start()
        exporter._outlets.append(ticker)
    exporter.close()
    assert sorted(done) == ["last", "last", "last", "page"]
