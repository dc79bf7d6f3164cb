"""However a run ends, its last state reaches every Prometheus that scrapes it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.runs import Training, start
from tests.tools import GENERATIONS, Prometheus, eventually, free_port, prometheus, require_tools

ENDINGS = {
    # how: (the signal that ends it, its exit status, the state of the run, the exception's class)
    "end": (None, 0, "finished", None),
    "raise": (None, 1, "failed", "ValueError"),
    "exit": (None, 3, "stopped", "SystemExit"),
    "wait": (signal.SIGTERM, -signal.SIGTERM, "preempted", None),
    "caught": (signal.SIGINT, 0, "stopped", "KeyboardInterrupt"),
    "ctrl-c": (signal.SIGINT, -signal.SIGINT, "stopped", "KeyboardInterrupt"),
}


@contextmanager
def _scraped(folder: Path, seconds: float, intervals: list[str]) -> Iterator[tuple[list[Training], list[Prometheus]]]:
    """One training for each ending, and servers of both generations at each interval that scrape all of them."""
    with ExitStack() as stack:
        trainings = []
        for how in ENDINGS:
            training = start(folder / how, free_port(), "wait" if how == "ctrl-c" else how, "--seconds", str(seconds))
            training.how = how
            stack.callback(training.process.wait)
            stack.callback(training.process.kill)
            trainings.append(training)
        targets = [f"127.0.0.1:{training.port}" for training in trainings]
        servers = [
            stack.enter_context(prometheus(generation, folder / f"p{generation}-{interval}", targets, interval))
            for generation in GENERATIONS
            for interval in intervals
        ]
        yield trainings, servers


def _end(trainings: list[Training], seconds: float) -> None:
    """Let each end, by itself or by its signal, and wait until its process is gone."""
    for training in trainings:
        eventually(lambda training=training: len(training.lines) > 3)
    time.sleep(seconds)
    for training in trainings:
        ending = ENDINGS[training.how][0]
        if ending is not None:
            training.signal(ending)
    for training in trainings:
        training.process.wait(seconds + 200)


def _check(training: Training, server: Prometheus) -> None:
    _, status, state, exception = ENDINGS[training.how]
    run = f'run="{training.name}"'
    last = training.lines[-1]

    assert training.process.returncode == status, training.output[-2000:]
    for series, expected in (
        (f'rl_run_state{{{run},state="{state}"}}', 1.0),
        (f'rl_run_state{{{run},state="running"}}', 0.0),
        (f"rl_last_log_step{{{run}}}", last["step"]),
        (f"rl_steps_total{{{run}}}", last["step"]),
        (f"rl_reward_mean{{{run}}}", last["reward"]),
        (f"rl_tokens_total{{{run}}}", last["num_tokens"]),
    ):
        assert server.value(f"last_over_time({series}[30m])") == expected, (training.how, series)
    classes = server.query(f"last_over_time(rl_run_exception_info{{{run}}}[30m])")
    assert [found["metric"]["exception"] for found in classes] == ([exception] if exception else [])


def _all_endings(folder: Path, seconds: float, intervals: list[str]) -> None:
    for generation in GENERATIONS:
        require_tools(generation)
    with _scraped(folder, seconds, intervals) as (trainings, servers):
        _end(trainings, seconds)
        for training in trainings:
            for server in servers:
                _check(training, server)
            assert "Traceback" not in training.output or training.how in ("raise", "ctrl-c")


def test_every_ending_is_seen(tmp_path: Path) -> None:
    """By a Prometheus 2 and a Prometheus 3."""
    _all_endings(tmp_path, 3, ["1s"])


@pytest.mark.slow
def test_every_ending_is_seen_by_who_comes_seldom(tmp_path: Path) -> None:
    """At 15 seconds, and at 1."""
    _all_endings(tmp_path, 35, ["1s", "15s"])


@pytest.mark.soak
def test_every_ending_is_seen_each_minute(tmp_path: Path) -> None:
    """At 60 seconds; SIGTERM leaves 25 seconds, in which such a server may not come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ENDINGS, "wait")
        _all_endings(tmp_path, 130, ["60s"])
