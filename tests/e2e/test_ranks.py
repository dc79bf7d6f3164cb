"""Several real ranks: each is seen for itself, and none waits for another because of us."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import forks
from tests.e2e.forks import Run
from tests.e2e.paging import rules
from tests.tools import ROOT, Prometheus, eventually, free_port, launched, prometheus, served

pytestmark = pytest.mark.slow

ACCELERATE = ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
ON_CPU = ("--mixed_precision", "no", "--dynamo_backend", "no")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node")
SCRIPT = ("-m", "tests.e2e.ranks")


@contextmanager
def _launched(command: Sequence[str], folder: Path, ranks: str = "all", **told: str) -> Iterator[subprocess.Popen[str]]:
    """A launcher, of which ``ranks`` serve."""
    environ = {"ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT), "RLEXPORTER_RANKS": ranks}
    with launched(command, folder, **environ, **told) as launcher:
        yield launcher


def _ends_well(launcher: subprocess.Popen[str], folder: Path, told: Path) -> None:
    """Let the training in ``folder`` end, of which the launcher has ``told`` in files."""
    (folder / "enough").touch()
    assert launcher.wait(600) == 0, (told / "err").read_text()[-3000:]


def _rendezvous(job: str) -> tuple[str, ...]:
    """Options of torchrun that name a job."""
    return ("--rdzv-id", job, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}")


def _scraped(server: Prometheus, expression: str) -> dict[str, float]:
    """The result of an instant query, by rank."""
    return {each["metric"].get("rank", ""): float(each["value"][1]) for each in server.query(expression)}


def _buckets(values: list[float], bounds: list[str]) -> dict[str, int]:
    return {bound: sum(value <= float(bound) for value in values) for bound in bounds}


def test_one_rank_sees_what_the_others_do_not(tmp_path: Path) -> None:
    """A NaN reward of rank 1, which TRL's mean leaves out: seen as rank 1's, and paged; sums over ranks are exact.

    The port of rank 1 is taken: it moves to another one, which its target file names.
    """
    port = free_port()
    command = [*ACCELERATE, *ON_CPU, "--main_process_port", str(free_port()), "--module", "tests.e2e.ranks"]
    command += [str(tmp_path), str(port), "--nan-on", "1", "--wait"]
    found = {"file_sd_configs": [{"files": [f"{tmp_path}/targets/*.json"], "refresh_interval": "1s"}]}
    (tmp_path / "targets").mkdir()
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        _launched(command, tmp_path, RLEXPORTER_DISCOVERY_DIR=str(tmp_path / "targets")) as launcher,
        prometheus("3", tmp_path / "prometheus", [], rules=rules(tmp_path), scrape=found) as server,
    ):
        nan_counted = 'rl_nonfinite_values_total{metric="rl_reward_function_dist",kind="nan"}'
        eventually(lambda: _scraped(server, nan_counted) == {"1": 1})
        assert _scraped(server, 'rl_condition_events_total{condition="nonfinite_reward"}') == {"1": 1}
        eventually(lambda: server.query('ALERTS{alertname="RLRewardLost",alertstate="firing"}'))
        assert _scraped(server, "count by (rank) (rl_reward_mean)") == {"0": 1}
        assert _scraped(server, "rl_ranks_covered") == {"0": 1, "1": 1}
        assert _scraped(server, "rl_world_size") == {"0": 2}
        assert [float(each["value"][1]) for each in server.query("count by (run) (rl_step)")] == [2]
        pace = "rl_phase_time_seconds{phase='reward'} > 0"
        slow = eventually(lambda: found if len(found := _scraped(server, pace)) == 2 else None)
        assert slow["1"] > slow["0"]
        work, wait = (f"rl_phase_seconds_total{{phase='{phase}'}}" for phase in ("generation", "rollout"))
        assert all(seconds > 0 for seconds in eventually(lambda: _scraped(server, work)).values())
        waited = _scraped(server, wait)
        assert waited["0"] > waited["1"]  # for the rewards of rank 1, which sleeps longer
        eventually(lambda: server.query("rl:rank_lag_fraction > 0"))
        _ends_well(launcher, tmp_path, tmp_path)
        _equal_to_the_independent_count(server, tmp_path)


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


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs ranks without a launcher, of which each would import torch and TRL for longer than it trains."""
    with forks.forks() as found:
        yield found


def _trained(run: Run, folder: Path, ranks: int, *options: str, serve: str = "all") -> list[dict[str, Any]]:
    """What each of the ranks saw of a training that ended by itself, without an error."""
    folder.mkdir(exist_ok=True)
    told = {"ACCELERATE_USE_CPU": "true", "RLEXPORTER_RANKS": serve, "RLEXPORTER_LINGER_SECONDS": "0"}
    done = run(*forks.ranks(ranks, SCRIPT[1], (str(folder), "0", *options), **told))
    assert [each.returncode for each in done] == [0] * ranks, [each.stderr[-3000:] for each in done]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "serve", "bad", "options"),
    [
        (2, "all", 1, ()),
        pytest.param(2, "main", 0, ("--callback",), marks=pytest.mark.soak),
        pytest.param(4, "all", 1, ("--callback",), marks=pytest.mark.soak),
        pytest.param(4, "main", 0, (), marks=pytest.mark.soak),
    ],
)
def test_what_one_rank_sees_stops_all_of_them(
    run: Run, tmp_path: Path, ranks: int, serve: str, bad: int, options: tuple[str, ...]
) -> None:
    """In the step of the NaN, with a whole checkpoint set aside; what is left trains on from the one before."""
    asked = ("--on-critical", "save,stop", "--save-steps", "2", *options)
    seen = _trained(run, tmp_path, ranks, *asked, "--nan-on", str(bad), serve=serve)
    assert [each["nan_step"] for each in seen] == [5 if rank == bad else 0 for rank in range(ranks)]
    assert [(each["step"], each["ends"]) for each in seen] == [(5, 1)] * ranks
    assert seen[0]["state"] == ["stopped"]
    assert seen[0]["by"] == ["on_critical"]
    heard = ranks if serve == "all" or not options else 1  # a callback has an exporter only where it serves
    assert [each.get("should_stop") for each in seen] == [True] * heard + [None] * (ranks - heard)
    assert [each["collectives"] for each in seen] == [
        ["new_group", *["all_reduce"] * 10]
    ] * ranks  # five around the save
    trained = tmp_path / "trained"
    assert {each.name for each in trained.glob("*checkpoint*")} == {
        "checkpoint-2",
        "checkpoint-4",
        "suspect-checkpoint-5",
    }
    states = {each.name for each in (trained / "suspect-checkpoint-5").glob("rng_state_*")}
    assert states == {f"rng_state_{rank}.pth" for rank in range(ranks)}

    again = _trained(run, tmp_path, ranks, *asked, "--resume", "--steps", "6", serve=serve)
    assert [(each["began"], each["step"]) for each in again] == [([5, 6], 6)] * ranks
    assert again[0]["state"] == ["finished"]


def test_ranks_that_agree_train_as_others_do(run: Run, tmp_path: Path) -> None:
    """A healthy run makes one all-reduce a step, where on_critical is set, and none where not; weights are the same."""
    plain = _trained(run, tmp_path / "plain", 2, "--steps", "4")
    asked = _trained(run, tmp_path / "asked", 2, "--steps", "4", "--on-critical", "save,stop")
    assert [each["collectives"] for each in plain] == [[], []]
    assert [each["collectives"] for each in asked] == [["new_group", *["all_reduce"] * 4]] * 2
    assert [each["state"] for each in asked] == [["finished"]] * 2
    assert [each["weights"] for each in asked] == [each["weights"] for each in plain]


@pytest.mark.soak
def test_ranks_that_agree_wait_no_longer_for_a_dead_one(tmp_path: Path) -> None:
    """Rank 1 is killed: the launcher ends about as soon as it does where on_critical is not set."""
    took = []
    for number, asked in enumerate(("", "stop")):
        folder, port = tmp_path / str(number), free_port()
        command = [*TORCHRUN, "2", "--standalone", *SCRIPT, str(folder), str(port), "--on-critical", asked]
        with _launched(command, folder, RLEXPORTER_LINGER_SECONDS="0") as launcher:
            eventually(lambda at=port: _value(at, "rl_step{") > 2)
            os.kill(json.loads((folder / "started-1.json").read_text())["pid"], signal.SIGKILL)
            killed = time.monotonic()
            assert launcher.wait(600) == 1
            took.append(time.monotonic() - killed)
    assert took[1] < took[0] + 5


def test_a_failed_rank_is_scraped_and_the_run_goes_on(tmp_path: Path) -> None:
    """Its launcher waits for one scrape, although it may linger for an hour; launched again it is the next attempt.

    Of that only rank 0 serves, since nothing else was asked for.
    """
    port = free_port()
    command = [*TORCHRUN, "2", *_rendezvous("job-7"), *SCRIPT, str(tmp_path), str(port)]
    again = tmp_path / "again"
    with prometheus("3", tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as server:
        _fails_on_one_rank([*command, "--fail-on", "1"], tmp_path, port)
        with _launched([*command, "--wait"], again, ranks="main") as launcher:
            eventually(lambda: server.query('rl_run_info{attempt="2"} and on (run) rl_step > 1'))
            assert not served(port + 1)
            _ends_well(launcher, tmp_path, again)
        attempts = server.query("last_over_time(rl_run_info[5m])")
    assert sorted(each["metric"]["attempt"] for each in attempts) == ["1", "2"]
    assert {each["metric"]["run"] for each in attempts} == {"trained-job-7"}
    logs = [*(tmp_path / "out").read_text().splitlines(), *(again / "out").read_text().splitlines()]
    assert [json.loads(line)["run"] for line in logs if line.startswith('{"rank"')] == ["trained-job-7"] * 4


def _fails_on_one_rank(command: list[str], tmp_path: Path, port: int) -> None:
    words = []
    with _launched(command, tmp_path, RLEXPORTER_LINGER_SECONDS="3600") as launcher:
        eventually(lambda: served(port + 1, "Prometheus/3"))
        (tmp_path / "fail").touch()

        def ended() -> bool:
            words.append(served(port + 1, "Prometheus/3"))
            return launcher.poll() is not None

        eventually(ended)
        assert launcher.returncode == 1
    last = [each for each in words if each][-1]
    assert re.search(r'^rl_run_state{.*state="failed"} 1.0$', last, re.MULTILINE)


def test_a_launcher_that_restarts_its_ranks_makes_the_next_attempt(tmp_path: Path) -> None:
    """All ranks of it, under the name of the run; what the failed rank saw last was scraped before.

    Torch shares the launcher's store with its ranks, where gloo then finds the addresses of the attempt before, and is
    refused. So the store is not shared here.
    """
    port = free_port()
    command = [*TORCHRUN, "2", "--max-restarts", "1", *_rendezvous("job-9"), *SCRIPT]
    command += [str(tmp_path), str(port), "--fail-on", "1", "--wait"]
    targets = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    with (
        prometheus("3", tmp_path / "prometheus", targets) as server,
        _launched(command, tmp_path, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as launcher,
    ):
        eventually(lambda: set(_scraped(server, "rl_step > 1")) == {"0", "1"})
        (tmp_path / "fail").touch()
        eventually(lambda: _scraped(server, "rl_run_state{state='failed'} == 1").get("1"))
        eventually(lambda: set(_scraped(server, "rl_step > 1 and on (run) rl_run_info{attempt='2'}")) >= {"0"})
        eventually(lambda: all(f'rank="{rank}"' in served(port + rank) for rank in (0, 1)))
        _ends_well(launcher, tmp_path, tmp_path)
        assert {each["metric"]["run"] for each in server.query("last_over_time(rl_run_info[10m])")} == {"trained-job-9"}


def test_a_rank_that_hangs_is_told_apart_and_the_others_are_served(tmp_path: Path) -> None:
    """It hangs in its reward function, the other one waits for it, and both answer; then its whole process stands.

    That takes no more than timings of the other ranks, which are few.
    """
    port = free_port()
    command = [*TORCHRUN, "2", *SCRIPT, str(tmp_path), str(port), "--hang-on", "1", "--wait"]
    with _launched(command, tmp_path, ranks="timings") as launcher:
        eventually((tmp_path / "hangs-1.json").exists)
        pid = json.loads((tmp_path / "hangs-1.json").read_text())["pid"]
        eventually(lambda: [_phase(port), _phase(port + 1)] == ["rollout", "reward"])
        hung = [_value(port, "rl_step{"), _value(port + 1, "rl_step{")]
        assert hung[0] == hung[1] > 0
        assert 20 < len(_samples(port + 1)) <= 60
        assert [each for each in _samples(port + 1) if "rl_step_duration" in each]
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
        _ends_well(launcher, tmp_path, tmp_path)
    assert _value(port, "rl_step{") == 0
    errors = [line for line in (tmp_path / "err").read_text().splitlines() if "rlexporter: " in line]
    assert all(any(word in line for word in ("serving", "scraped", "is over: ")) for line in errors)
    assert sum("is over: " in line for line in errors) == 1


def _value(port: int, *parts: str) -> float:
    """The sample whose line has all these ``parts``; 0 where it is not served."""
    found = [line for line in _samples(port) if all(part in line for part in parts)]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def _phase(port: int) -> str:
    """The innermost phase that a rank is in."""
    found = [line for line in _samples(port) if line.startswith("rl_phase{") and line.endswith(" 1.0")]
    return found[0].partition('phase="')[2].partition('"')[0] if len(found) == 1 else str(found)


def _samples(port: int) -> list[str]:
    return [line for line in served(port).splitlines() if not line.startswith("#")]
