"""Several real ranks: each is seen for itself, and none waits for another because of us."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.paging import rules
from tests.tools import ROOT, Prometheus, eventually, free_port, launched, prometheus, served, two_ports

ACCELERATE = ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
ON_CPU = ("--mixed_precision", "no", "--dynamo_backend", "no")


ENVIRON = {"ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT)}


def _scraped(server: Prometheus, expression: str) -> dict[str, float]:
    """The result of an instant query, by rank."""
    return {each["metric"].get("rank", ""): float(each["value"][1]) for each in server.query(expression)}


def _buckets(values: list[float], bounds: list[str]) -> dict[str, int]:
    return {bound: sum(value <= float(bound) for value in values) for bound in bounds}


@pytest.mark.slow
def test_one_rank_sees_what_the_others_do_not(tmp_path: Path) -> None:
    """A NaN reward of rank 1, which TRL's mean leaves out: seen as rank 1's, and paged; sums over ranks are exact.

    The port of rank 1 is taken: it moves to another one, which its target file names.
    """
    port = two_ports()
    command = [*ACCELERATE, *ON_CPU, "--main_process_port", str(free_port())]
    command += ["--module", "tests.e2e.ranks", str(tmp_path), str(port), "--nan-on", "1", "--wait"]
    found = {"file_sd_configs": [{"files": [f"{tmp_path}/targets/*.json"], "refresh_interval": "1s"}]}
    (tmp_path / "targets").mkdir()
    told = {"RLEXPORTER_RANKS": "all", "RLEXPORTER_DISCOVERY_DIR": str(tmp_path / "targets")}
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        launched(command, tmp_path, **ENVIRON, **told) as launcher,
        prometheus("3", tmp_path / "prometheus", [], rules=rules(tmp_path), scrape=found) as server,
    ):
        nan_counted = 'rl_nonfinite_values_total{metric="rl_reward_function_dist",kind="nan"}'
        eventually(lambda: _scraped(server, nan_counted) == {"1": 1})
        assert _scraped(server, 'rl_condition_events_total{condition="nonfinite_reward"}') == {"1": 1}
        eventually(lambda: server.query('ALERTS{alertname="RLRewardNonFinite",alertstate="firing"}'))
        assert _scraped(server, "count by (rank) (rl_reward_mean)") == {"0": 1}
        assert _scraped(server, "rl_ranks_covered") == {"0": 1, "1": 1}
        assert _scraped(server, "rl_world_size") == {"0": 2}
        assert [float(each["value"][1]) for each in server.query("count by (run) (rl_step)")] == [2]
        pace = "rl_phase_time_seconds{phase='reward'} > 0"
        slow = eventually(lambda: _both(_scraped(server, pace)))
        assert slow["1"] > slow["0"]
        (tmp_path / "enough").touch()
        assert launcher.wait(600) == 0, (tmp_path / "err").read_text()[-3000:]
        _equal_to_the_independent_count(server, tmp_path)


def _both(found: dict[str, float]) -> dict[str, float] | None:
    return found if set(found) == {"0", "1"} else None


def _equal_to_the_independent_count(server: Prometheus, folder: Path) -> None:
    seen = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]
    assert [each["collectives"] for each in seen] == [[], []]
    lengths: list[float] = [length for each in seen for length in each["lengths"]]
    finite = [reward for each in seen for reward in each["rewards"] if not isnan(reward)]
    assert len(finite) == len(lengths) - 1
    for metric, values in (("rl_reward_function_dist", finite), ("rl_completion_length_dist", lengths)):
        found: list[Any] = server.query(f"sum by (le) (last_over_time({metric}_bucket[5m]))")
        counts = {each["metric"]["le"]: int(each["value"][1]) for each in found}
        assert len(counts) > 5
        assert counts == _buckets(values, list(counts)), metric


@pytest.mark.slow
def test_a_failed_rank_ends_at_once_and_the_run_goes_on(tmp_path: Path) -> None:
    """Though a scraper that comes once a minute has not seen its end; launched again it is the next attempt."""
    port = two_ports()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-id", "job-7"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    command += ["-m", "tests.e2e.ranks", str(tmp_path), str(port)]
    with prometheus("3", tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as server:
        _fails_on_one_rank(command, tmp_path, port)
        with launched([*command, "--wait"], tmp_path / "again", **ENVIRON, RLEXPORTER_RANKS="all") as launcher:
            eventually(lambda: server.query('rl_run_info{attempt="2"}'))
            (tmp_path / "enough").touch()
            assert launcher.wait(600) == 0, (tmp_path / "again/err").read_text()[-3000:]
        attempts = server.query("last_over_time(rl_run_info[5m])")
    assert sorted(each["metric"]["attempt"] for each in attempts) == ["1", "2"]
    assert {each["metric"]["run"] for each in attempts} == {"trained-job-7"}
    logs = [*(tmp_path / "out").read_text().splitlines(), *(tmp_path / "again/out").read_text().splitlines()]
    assert [json.loads(line)["run"] for line in logs if line.startswith('{"rank"')] == ["trained-job-7"] * 4


def _fails_on_one_rank(command: list[str], tmp_path: Path, port: int) -> None:
    with launched([*command, "--fail-on", "1"], tmp_path, **ENVIRON, RLEXPORTER_RANKS="all") as launcher:
        eventually(lambda: served(port + 1, "Prometheus/slow"))  # a scraper of rank 1 that would be waited for
        (tmp_path / "fail").touch()
        failed = tmp_path / "failed-1.json"
        eventually(failed.exists)
        dying = json.loads(failed.read_text())
        eventually(lambda: not _alive(dying["pid"]))
        assert time.time() - dying["time"] < 60
        assert launcher.wait(600) == 1


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_apart_and_the_others_are_served(tmp_path: Path) -> None:
    """It hangs in its reward function, the other one waits for it, and both answer; then its whole process stands."""
    port = two_ports()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tests.e2e.ranks", str(tmp_path), str(port), "--hang-on", "1", "--wait"]
    with launched(command, tmp_path, **ENVIRON, RLEXPORTER_RANKS="all") as launcher:
        eventually((tmp_path / "hangs-1.json").exists)
        pid = json.loads((tmp_path / "hangs-1.json").read_text())["pid"]
        eventually(lambda: [_phase(port), _phase(port + 1)] == ["rollout", "reward"])
        hung = [_value(port, "rl_step{"), _value(port + 1, "rl_step{")]
        assert hung[0] == hung[1] > 0
        started = time.time()
        assert [bool(served(port)), bool(served(port + 1))] == [True, True]
        assert _value(port, "rl_run_state{", 'state="running"') == 1
        assert _value(port, "rl_last_step_timestamp_seconds{") < started

        os.kill(pid, signal.SIGSTOP)
        assert [bool(served(port)), bool(served(port + 1))] == [True, False]
        os.kill(pid, signal.SIGCONT)
        assert [bool(served(port)), _phase(port + 1)] == [True, "reward"]

        (tmp_path / "go").touch()
        eventually(lambda: min(_value(port, "rl_step{"), _value(port + 1, "rl_step{")) > hung[0])
        (tmp_path / "enough").touch()
        assert launcher.wait(600) == 0, (tmp_path / "err").read_text()[-3000:]
    assert _value(port, "rl_step{") == 0
    errors = [line for line in (tmp_path / "err").read_text().splitlines() if "rlexporter: " in line]
    assert all("serving" in line or "scraped" in line for line in errors)


def _value(port: int, *parts: str) -> float:
    """The sample whose line has all these ``parts``; 0 where it is not served."""
    found = [line for line in _samples(port) if all(part in line for part in parts)]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def _phase(port: int) -> str:
    """The innermost phase that a rank is in."""
    found = [line for line in _samples(port) if line.startswith("rl_phase{") and line.endswith(" 1.0")]
    return found[0].partition('phase="')[2].partition('"')[0] if len(found) == 1 else str(found)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["main", "timings"])
def test_what_other_ranks_serve_by_default(tmp_path: Path, ranks: str) -> None:
    """Nothing, without being asked; timings of at most 60 series where that was asked for."""
    port = two_ports()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tests.e2e.ranks", str(tmp_path), str(port), "--wait"]
    with launched(command, tmp_path, **ENVIRON, RLEXPORTER_RANKS=ranks):
        eventually(lambda: _samples(port))
        if ranks == "main":
            assert not _samples(port + 1)
            return
        found = eventually(lambda: [each for each in _samples(port + 1) if "rl_step_duration" in each])
        assert found
        assert 20 < len(_samples(port + 1)) <= 60


def _samples(port: int) -> list[str]:
    return [line for line in served(port).splitlines() if not line.startswith("#")]
