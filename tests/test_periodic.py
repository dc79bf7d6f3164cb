"""What is done again and again: when, after what, and how it ends."""

from __future__ import annotations

import threading
import time

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


def test_comes_again_by_itself() -> None:
    """After its seconds, or those that the tick asked for."""
    done: list[float] = []

    def tick() -> float:
        done.append(time.monotonic())
        return 0.01

    ticker = Ticker("test", 1000, tick, lambda _: None)
    ticker.start()
    eventually(lambda: len(done) >= 3)
    ticker.close()


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


def test_close_does_not_wait_for_what_hangs() -> None:
    """Longer than it was told."""
    hangs = threading.Event()

    def hang() -> None:
        hangs.wait()

    ticker = Ticker("test", 1000, hang, lambda _: None, patience=600)
    ticker.start()

    ticker.close(0.1)

    assert _alive("test")
    hangs.set()
    eventually(lambda: not _alive("test"))


def test_one_that_was_never_started_can_be_closed() -> None:
    """Where something else could not be set up: what was made for it is taken back."""
    done: list[str] = []
    Ticker("test", 1, lambda: None, print, last=lambda: done.append("last")).close()

    assert done == ["last"]
