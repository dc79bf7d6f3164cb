"""A launcher that restarts its ranks: the same run, the next attempt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.test_ranks import ENVIRON, _scraped
from tests.tools import eventually, free_port, launched, prometheus, served, two_ports


@pytest.mark.slow
def test_a_launcher_that_restarts_its_ranks_makes_the_next_attempt(tmp_path: Path) -> None:
    """All ranks of it, under the name of the run; what the failed rank saw last was served until then.

    Torch shares the launcher's store with its ranks, where gloo then finds the addresses of the attempt before, and is
    refused. So the store is not shared here.
    """
    port = two_ports()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--rdzv-id", "job-9", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    command += ["-m", "tests.e2e.ranks", str(tmp_path), str(port), "--fail-on", "1", "--wait"]
    told = {**ENVIRON, "RLEXPORTER_RANKS": "all", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    targets = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    with (
        prometheus("3", tmp_path / "prometheus", targets) as server,
        launched(command, tmp_path, **told) as launcher,
    ):
        eventually(lambda: set(_scraped(server, "rl_step > 1")) == {"0", "1"})
        (tmp_path / "fail").touch()
        eventually(lambda: _scraped(server, "rl_run_state{state='failed'} == 1").get("1"))
        eventually(lambda: set(_scraped(server, "rl_step > 1 and on (run) rl_run_info{attempt='2'}")) >= {"0"})
        eventually(lambda: all(f'rank="{rank}"' in served(port + rank) for rank in (0, 1)))
        (tmp_path / "enough").touch()
        assert launcher.wait(600) == 0, (tmp_path / "err").read_text()[-3000:]
        assert {each["metric"]["run"] for each in server.query("last_over_time(rl_run_info[10m])")} == {"trained-job-9"}
