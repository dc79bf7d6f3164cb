"""NaN weights in a real PPO run, which dies of them, are one call of a real webhook, and no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trl

from tests.e2e.paging import FLAP, LATELY, SLACK, SOON, UNSEEN, chain, desk
from tests.tools import ALERTMANAGERS, GENERATIONS, ROOT, eventually, free_port

if trl.__version__.startswith("0."):
    pytest.skip("once is enough: trl 1.12 has it", allow_module_level=True)
pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)

from tests.versions.crash import FAULT


def test_nan_weights_page_once(tmp_path: Path) -> None:
    """In both generations: the cause with run and step, for good; not what it made NaN, nor the death."""
    port = free_port()
    command = [sys.executable, "-m", "tests.versions.crash", str(tmp_path), str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with ExitStack() as stack:
        desks, servers = [], []
        for generation, alertmanager in zip(GENERATIONS, ALERTMANAGERS, strict=True):
            desks.append(stack.enter_context(desk(alertmanager, tmp_path / alertmanager)))
            servers.append(stack.enter_context(chain(generation, tmp_path / generation, [port], desks[-1])))
        crashing = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)
        stack.callback(crashing.wait)
        stack.callback(crashing.kill)
        _, error = crashing.communicate(timeout=600)
        died = time.time()
        assert "probability tensor" in error
        assert crashing.returncode == 1

        for at, server in zip(desks, servers, strict=True):
            page = at.page("crash", "RLWeightsNonFinite")
            assert page.labels["severity"] == "critical"
            assert re.fullmatch(
                rf"Run crash, step {FAULT}: (1 NaN or infinite value|2 NaN or infinite values)\.", page.description
            )
            assert page.at - died < SOON + SLACK
            holding = 'count(last_over_time(rl_condition{condition=~"nonfinite_.*",run="crash"}[1m]) == 1)'
            assert (server.value(holding) or 0) >= 6
            assert server.value('last_over_time(rl_run_state{state="failed",run="crash"}[1m])') == 1
        eventually(lambda: time.time() > died + LATELY + FLAP + UNSEEN)
        for at, server in zip(desks, servers, strict=True):
            assert at.pages("crash") == {"RLWeightsNonFinite": "firing"}
            assert not at.told("crash", status="resolved")
            assert server.value('ALERTS{alertstate="firing",alertname="RLWeightsNonFinite",run="crash"}') == 1
            fired = server.query('count_over_time(ALERTS{alertstate="firing",severity="critical",run="crash"}[5m])')
            assert {each["metric"]["alertname"] for each in fired} == {"RLWeightsNonFinite"}
