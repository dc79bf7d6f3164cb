"""One bad update between two scrapes, and then the process is gone: Prometheus has it all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trl

from tests.tools import GENERATIONS, ROOT, free_port, prometheus, require_tools

if trl.__version__.startswith("0."):
    pytest.skip("once is enough: trl 1.12 has it", allow_module_level=True)
pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)


def test_a_nan_value_loss_reaches_prometheus(tmp_path: Path) -> None:
    """At 1 and at 15 seconds, in both generations: the loss, its count, the last step and how the run ended."""
    for generation in GENERATIONS:
        require_tools(generation)
    port = free_port()
    command = [sys.executable, "-m", "tests.versions.crash", str(tmp_path), str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                prometheus(generation, tmp_path / f"{generation}-{interval}", [f"127.0.0.1:{port}"], interval)
            )
            for generation in GENERATIONS
            for interval in ("1s", "15s")
        ]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 1
        assert "probability tensor" in done.stderr
        for server in servers:
            for series, expected in (
                ('rl_nonfinite_values_total{metric="rl_value_loss",kind="nan"}', 4),
                ("rl_last_log_step", 12),
                ('rl_run_state{state="failed"}', 1),
            ):
                assert server.value(f"last_over_time({series}[10m])") == expected, series
            loss = server.value("last_over_time(rl_value_loss[10m])")
            assert loss is not None
            assert loss != loss
