"""The interpreter's hooks: SIGTERM handlers are chained and given back, exits are waited for, forks are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlexporter import Exporter
from rlexporter.model.snapshot import RunState
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.run import shutdown
from tests.tools import eventually, free_port, served


@pytest.fixture(autouse=True)
def _own_handler() -> Iterator[None]:
    """SIGTERM must not end the test run."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def running(exporter: Exporter) -> Exporter:
    """An exporter whose training is under way."""
    exporter.run.begin(RunFacts(algorithm="grpo", step=0))
    return exporter


class Handler:
    """A SIGTERM handler that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: Any) -> None:
        self.calls += 1


def test_the_handler_that_was_there_is_called() -> None:
    """A user's own checkpointing goes on as before; the run is preempted."""
    mine = Handler()
    signal.signal(signal.SIGTERM, mine)
    with Exporter(port=0) as exporter:
        exporter.log({"reward": 1.0})
        signal.raise_signal(signal.SIGTERM)

        assert mine.calls == 1
        assert exporter.state is RunState.PREEMPTED
        assert exporter.port
    assert signal.getsignal(signal.SIGTERM) is mine


def test_a_handler_that_comes_later_is_chained(running: Exporter) -> None:
    """It replaces ours; with the next step ours is in front again, and calls it."""
    later = Handler()
    signal.signal(signal.SIGTERM, later)
    running.run.sink.advance(StepUpdate(step=1))
    running.run.sink.advance(StepUpdate(step=2))
    signal.raise_signal(signal.SIGTERM)

    assert later.calls == 1
    assert running.state is RunState.PREEMPTED


def test_a_handler_of_the_training_goes_with_it(running: Exporter) -> None:
    """transformers' checkpointing on SIGTERM installs one that does not end the process: it must not stay in charge."""
    first, later = Handler(), Handler()
    shutdown._displaced[:] = [first]
    signal.signal(signal.SIGTERM, later)
    running.run.sink.advance(StepUpdate(step=1))
    running.end()
    signal.raise_signal(signal.SIGTERM)

    assert (first.calls, later.calls) == (1, 0)


def test_the_order_of_handlers_that_take_turns_is_bounded(running: Exporter) -> None:
    """Something that installs its handler before every step."""
    mine = Handler()
    for step in range(1, 50):
        signal.signal(signal.SIGTERM, mine)
        running.run.sink.advance(StepUpdate(step=step))

    assert len(shutdown._displaced) <= 2


def test_a_process_that_ignores_sigterm_goes_on() -> None:
    """It is not preempted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Exporter(port=0) as exporter:
        exporter.log({"reward": 1.0})
        signal.raise_signal(signal.SIGTERM)

        assert exporter.state is RunState.RUNNING
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_touch_no_handler() -> None:
    """Only the main thread may; the rest works."""
    before = signal.getsignal(signal.SIGTERM)
    found: list[Any] = []

    def serve() -> None:
        with Exporter(port=0) as exporter:
            found.append((exporter.port, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()

    assert found[0][0]
    assert found[0][1] is before


_DYING = """
import os, signal, sys, time, rlexporter
exporter = rlexporter.Exporter(run="x", port=int(sys.argv[1])).start()
exporter.log({"reward": 1.0})
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("agent", [None, "Prometheus/3.5.3"])
def test_without_a_handler_the_process_dies_of_the_signal(agent: str | None) -> None:
    """As its supervisor expects: at once where nobody scrapes, else when the final state was fetched."""
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-c", _DYING, str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stderr
    assert child.stdout.readline() == "ready\n"
    if agent:
        assert served(port, agent)
    child.send_signal(signal.SIGTERM)
    if agent:
        eventually(lambda: 'rl_run_state{rank="0",run="x",state="preempted"} 1.0' in served(port, agent))
    assert child.wait(shutdown.SIGTERM_GRACE_SECONDS / 2) == -signal.SIGTERM
    said = child.stderr.read()
    child.stdout.close()
    child.stderr.close()

    assert ("serving the final state until it has been scraped, at most" in said) is bool(agent)


def waiting(looks: int, patience: float = 30.0) -> shutdown.Ending:
    """Something that is waited for, for so many looks at it."""
    left = iter([patience] * looks)
    return shutdown.Ending(left, print, print, lambda: next(left, 0.0), print, print)


class Clock:
    """A clock on which only sleeping takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of whoever waits for scrapers."""
    found = Clock()
    monkeypatch.setattr(shutdown, "time", found)
    return found


def test_waiting_ends_with_the_last_scraper(clock: Clock) -> None:
    """Not with the first, and not with the limit."""
    endings = [waiting(2), waiting(4)]
    shutdown.wait(endings)

    assert clock.now < 1.0
    assert [list(each.of) for each in endings] == [[], []]


@pytest.mark.parametrize(("limits", "most"), [({}, 30.0), ({"limit": 0.3}, 0.3)])
def test_waiting_is_bounded(clock: Clock, limits: dict[str, float], most: float) -> None:
    """By the patience of the most patient, and by the limit."""
    shutdown.wait([waiting(10**6, 0.3), waiting(10**6)], **limits)

    assert clock.now == pytest.approx(most, abs=2 * shutdown._POLL_SECONDS)


def test_ctrl_c_ends_waiting(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the person at the terminal."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupt)
    shutdown.wait([waiting(10**6)])

    assert clock.now == 0.0


_LEAVING = """
import atexit, os, sys, threading, rlexporter
from rlexporter.endpoint import endpoint  # for all

*cases, results = sys.argv[1:]
started = {}
for case in cases:
    child = os.fork()
    if child == 0:
        break
    started[child] = case
if child != 0:
    with open(results, "a") as out:
        for child, case in started.items():
            print(case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=out, flush=True)
    os._exit(0)

exporter = rlexporter.Exporter(run="x", port=0)


@atexit.register
def tell():
    found = [s.labels[0] for s in exporter.snapshot.samples if s.metric.series == "rl_run_exception_info"]
    with open(results, "a") as out:
        print(case, exporter.state.value, *found, file=out)


def drive():
    exporter.start()
    exporter.log({"reward": 1.0})
    if where == "ended":
        exporter.end()


def leave():
    if how == "raise":
        raise SystemExit(3)
    if how == "error":
        raise ValueError
    if how != "return":
        sys.exit({"0": 0, "3": 3}.get(how, how))


how, where = case.split("/")
if where == "with":
    with exporter:
        leave()
elif where == "thread":
    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    leave()
else:
    drive()
    try:
        leave()
    finally:
        exporter.log({"reward": 2.0})
"""
_STATUS = {"3": 3, "0": 0, "message": 1, "raise": 3, "return": 0, "error": 1}
_LEFT = {"return": "finished", "error": "failed ValueError"}


def _left(folder: Path, command: Sequence[str], *cases: str) -> set[str]:
    """What each of the cases leaves: a line with its status, and one with the state and the exception of the run."""
    (folder / "leaving.py").write_text(_LEAVING)
    results = folder / "results"
    done = subprocess.run(
        [sys.executable, *command, *cases, str(results)], timeout=600, cwd=folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return set(results.read_text().splitlines())


def test_how_a_process_is_left(tmp_path: Path) -> None:
    """Stopped by any SystemExit, whoever drives the exporter: Python tells nobody of it, nor of its status.

    What was ended by hand has finished, whatever the script does afterwards.
    """
    cases = {f"{how}/{where}": how for where in ("hand", "with", "thread") for how in _STATUS}
    expected = {f"{case} {_STATUS[how]}" for case, how in cases.items()} | {"3/ended 3", "3/ended finished"}
    expected |= {f"{case} {_LEFT.get(how, 'stopped SystemExit')}" for case, how in cases.items()}

    assert _left(tmp_path, ["-c", _LEAVING], *cases, "3/ended") == expected


@pytest.mark.parametrize("command", [("leaving.py",), ("-m", "leaving")])
def test_a_script_and_a_module_that_are_left(tmp_path: Path, command: tuple[str, ...]) -> None:
    """As the code of a command line."""
    expected = {"3/hand 3", "3/hand stopped SystemExit", "return/hand 0", "return/hand finished"}

    assert _left(tmp_path, command, "3/hand", "return/hand") == expected


def test_nothing_of_the_script_is_kept_after_close(exporter: Exporter) -> None:
    """Neither its frame nor a hook; `sys.exit` is never touched."""
    before, kept = sys.exit, [shutdown._script]
    exporter.close()
    kept.append(shutdown._script)

    assert [each is None for each in kept] == [False, True]
    assert sys.exit is before
