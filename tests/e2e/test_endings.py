"""However a run ends, its last state reaches Prometheus; resumed, it stays the same run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.runs import Training, start
from tests.tools import Prometheus, free_ports, prometheus, require_tools

pytestmark = pytest.mark.waits

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
    """One training for each ending, and a server at each interval that scrapes all of them."""
    with ExitStack() as stack:
        trainings = []
        for how, port in free_ports(ENDINGS).items():
            training = start(folder / how, port, "wait" if how == "ctrl-c" else how, "--seconds", str(seconds))
            training.how = how
            trainings.append(stack.enter_context(training))
        targets = [f"127.0.0.1:{training.port}" for training in trainings]
        servers = [stack.enter_context(prometheus("3", folder / interval, targets, interval)) for interval in intervals]
        yield trainings, servers


def _end(trainings: list[Training], seconds: float) -> None:
    """Let each end, by itself or by its signal, and wait until its process is gone."""
    for training in trainings:
        training.wait_logged(4)
    time.sleep(seconds)
    for training in trainings:
        ending = ENDINGS[training.how][0]
        if ending is not None:
            training.signal(ending)
    for training in trainings:
        training.process.wait(seconds + 600)


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


def _all_end(trainings: list[Training], servers: list[Prometheus], seconds: float) -> None:
    _end(trainings, seconds)
    for training in trainings:
        for server in servers:
            _check(training, server)
        assert "Traceback" not in training.output or training.how in ("raise", "ctrl-c")


@pytest.mark.slow
def test_every_ending_is_seen_and_a_resumed_run_stays_one(tmp_path: Path) -> None:
    """At 1 second, and by who comes every 15; runs stay apart although all have TRL's default name."""
    require_tools("3")
    with _scraped(tmp_path, 35, ["1s", "15s"]) as (trainings, servers):
        _all_end(trainings, servers, 35)
        names = {training.name for training in trainings}
        assert len(names) == len(trainings)
        preempted = next(training for training in trainings if training.how == "wait")
        _resumes(preempted, servers[0])
        assert {each["metric"]["run"] for each in servers[0].query("last_over_time(rl_step[30m])")} == names


def _resumes(preempted: Training, server: Prometheus) -> None:
    """It keeps its name, and its counters begin anew, once."""
    first, name = preempted.lines[-1], preempted.name
    (preempted.folder / "log.jsonl").unlink()
    with start(preempted.folder, preempted.port, "wait", "--resume") as again:
        again.wait_logged(9)
        again.signal(signal.SIGTERM)
        again.process.wait(600)
        last, resumed_at = again.lines[-1], again.lines[0]["step"] - 1

    assert again.name == name
    assert 5 <= resumed_at <= first["step"]
    run = f'run="{name}"'
    assert server.value(f"last_over_time(rl_step{{{run}}}[30m])") == last["step"]
    attempts = server.query(f"last_over_time(rl_run_info{{{run}}}[30m])")
    assert {found["metric"]["attempt"] for found in attempts} == {"1", "2"}
    for series, before, after in (
        ("rl_steps_total", first["step"], last["step"] - resumed_at),
        ("rl_tokens_total", first["num_tokens"], None),
    ):
        (found,) = server.query(f"{series}{{{run}}}[30m]")
        values = [float(value) for _, value in found["values"]]
        falls = [i for i in range(1, len(values)) if values[i] < values[i - 1]]
        assert len(falls) == 1, values
        assert values[falls[0] - 1] == before
        assert values[falls[0]] < before
        assert after is None or values[-1] == after


@pytest.mark.soak
def test_every_ending_is_seen_each_minute(tmp_path: Path) -> None:
    """At 60 seconds; SIGTERM leaves 25 seconds, in which such a server may not come."""
    require_tools("3")
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ENDINGS, "wait")
        with _scraped(tmp_path, 130, ["60s"]) as (trainings, servers):
            _all_end(trainings, servers, 130)
