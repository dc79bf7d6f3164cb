"""However a run ends, its last state reaches Prometheus; resumed, it stays the same run."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
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


@pytest.mark.slow
def test_every_ending_is_seen_and_a_resumed_run_stays_one(tmp_path: Path) -> None:
    """At 1 second, and by who comes every 15; runs stay apart although all have TRL's default name."""
    require_tools("3")
    trainings: dict[str, Training] = {}
    with ExitStack() as stack:
        for how, port in free_ports(ENDINGS).items():
            training = start(tmp_path / how, port, "wait" if how == "ctrl-c" else how, "--seconds", "35", "--pace", "1")
            trainings[how] = stack.enter_context(training)
        targets = [f"127.0.0.1:{training.port}" for training in trainings.values()]
        servers = [stack.enter_context(prometheus("3", tmp_path / each, targets, each)) for each in ("1s", "15s")]
        _end(trainings)
        for how, training in trainings.items():
            for server in servers:
                _check(how, training, server)
            assert "Traceback" not in training.output or how in ("raise", "ctrl-c")
        names = {training.name for training in trainings.values()}
        assert len(names) == len(trainings)
        _resumes(trainings["wait"], servers[0])
        assert {each["metric"]["run"] for each in servers[0].query("last_over_time(rl_step[30m])")} == names


def _end(trainings: dict[str, Training]) -> None:
    """Let each end, by itself or by its signal, and wait until its process is gone."""
    for training in trainings.values():
        training.wait_logged(4)
    time.sleep(35)
    for how, training in trainings.items():
        ending = ENDINGS[how][0]
        if ending is not None:
            training.signal(ending)
    for training in trainings.values():
        training.process.wait(600)


def _check(how: str, training: Training, server: Prometheus) -> None:
    _, status, state, exception = ENDINGS[how]
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
        assert server.value(f"last_over_time({series}[30m])") == expected, (how, series)
    classes = server.query(f"last_over_time(rl_run_exception_info{{{run}}}[30m])")
    assert [found["metric"]["exception"] for found in classes] == ([exception] if exception else [])
    (page,) = training.folder.rglob("rlexporter.html")
    assert f'"state": "{state}"' in page.read_text()
    assert training.output.count(" is over: ") == 1


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
