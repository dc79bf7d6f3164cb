"""A NaN value loss in a real PPO run, which dies of it, ends as a call of a real webhook."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trl

from tests.e2e.paging import SLACK, SOON, chain, desk
from tests.tools import ALERTMANAGERS, GENERATIONS, ROOT, eventually, free_port

if trl.__version__.startswith("0."):
    pytest.skip("once is enough: trl 1.12 has it", allow_module_level=True)
pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)

from tests.versions.crash import FAULT


def test_a_nan_value_loss_pages(tmp_path: Path) -> None:
    """In both generations, with run and step; that the process has died of it is told too, and hides nothing."""
    port = free_port()
    command = [sys.executable, "-m", "tests.versions.crash", str(tmp_path), str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with ExitStack() as stack:
        desks = []
        for generation, alertmanager in zip(GENERATIONS, ALERTMANAGERS, strict=True):
            desks.append(stack.enter_context(desk(alertmanager, tmp_path / alertmanager)))
            stack.enter_context(chain(generation, tmp_path / generation, [port], desks[-1]))
        crashing = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)
        stack.callback(crashing.wait)
        stack.callback(crashing.kill)
        _, error = crashing.communicate(timeout=200)
        died = time.time()
        assert "probability tensor" in error
        assert crashing.returncode == 1

        for at in desks:
            page, failed = at.page("crash", "RLValueLossNonFinite"), at.page("crash", "RLRunFailed")
            assert page.labels["severity"] == "critical"
            assert page.description == f"Run crash: 4 values, limit 0, since step {FAULT}."
            assert page.at - died < SOON + SLACK
            assert failed.description == f"Run crash: it has ended with RuntimeError, after step {FAULT}."
            eventually(lambda at=at: at.pages("crash")["RLRunFailed"] == "firing")
            assert at.pages("crash")["RLValueLossNonFinite"] == "firing"
            assert "RLRunVanished" not in at.pages("crash")
