"""Two users, and one run that resumes, in one Prometheus."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.runs import start
from tests.tools import eventually, free_port, prometheus


@pytest.mark.slow
def test_runs_stay_apart_and_a_resumed_run_stays_one(tmp_path: Path) -> None:
    """TRL's default names for both; the resumed one keeps its name, and its counters neither fall nor count twice."""
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        server = stack.enter_context(prometheus("2", tmp_path / "server", [f"127.0.0.1:{port}" for port in ports]))
        users = [start(tmp_path / user, port, "wait") for user, port in zip(("ada", "bob"), ports, strict=True)]
        for user in users:
            stack.callback(user.process.wait)
            stack.callback(user.process.kill)
        for user in users:
            eventually(lambda user=user: len(user.lines) > 12)
        names = [user.name for user in users]
        assert len(set(names)) == 2

        users[0].signal(signal.SIGTERM)
        users[0].process.wait(600)
        first = users[0].lines[-1]
        (tmp_path / "ada" / "log.jsonl").unlink()
        again = start(tmp_path / "ada", ports[0], "wait", "--resume")
        stack.callback(again.process.wait)
        stack.callback(again.process.kill)
        eventually(lambda: len(again.lines) > 8)
        again.signal(signal.SIGTERM)
        again.process.wait(600)
        last = again.lines[-1]
        resumed_at = again.lines[0]["step"] - 1

        assert again.name == names[0]
        assert 5 <= resumed_at <= first["step"]
        run = f'run="{names[0]}"'
        assert server.value(f"last_over_time(rl_step{{{run}}}[10m])") == last["step"]
        attempts = server.query(f"last_over_time(rl_run_info{{{run}}}[10m])")
        assert {found["metric"]["attempt"] for found in attempts} == {"1", "2"}
        for series, before, after in (
            ("rl_steps_total", first["step"], last["step"] - resumed_at),
            ("rl_tokens_total", first["num_tokens"], None),
        ):
            (found,) = server.query(f"{series}{{{run}}}[10m]")
            values = [float(value) for _, value in found["values"]]
            falls = [i for i in range(1, len(values)) if values[i] < values[i - 1]]
            assert len(falls) == 1, values
            assert values[falls[0] - 1] == before
            assert values[falls[0]] < before
            assert after is None or values[-1] == after
        assert server.value('count(count by (run) (last_over_time(rl_step{run=~"trainer_output-.*"}[10m])))') == 2
