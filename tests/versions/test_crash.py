"""NaN weights in a real PPO run, which dies of them: Prometheus has the bad update, and a webhook is called once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.paging import FLAP, LATELY, UNSEEN, chain, desk
from tests.tools import ALERTMANAGERS, GENERATIONS, ROOT, eventually, free_port, prometheus
from tests.versions.trls import VERSION

if VERSION != (1, 12):
    pytest.skip("once is enough: trl 1.12 has modern PPO", allow_module_level=True)

from tests.versions.crash import FAULT

pytestmark = pytest.mark.waits


def test_nan_weights_are_in_prometheus_and_page_once(tmp_path: Path) -> None:
    """Scraped every second and every 15: the loss, its count, the last step, and how the run ended.

    The page has the cause with run and step, for good; not what it made NaN, nor the death.
    """
    port = free_port()
    command = [sys.executable, "-m", "tests.versions.crash", str(tmp_path), str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with ExitStack() as stack:
        at = stack.enter_context(desk(ALERTMANAGERS[-1], tmp_path / "alertmanager"))
        often = stack.enter_context(chain(GENERATIONS[-1], tmp_path / "often", [port], at))
        targets = [f"127.0.0.1:{port}"]
        seldom = stack.enter_context(prometheus(GENERATIONS[-1], tmp_path / "seldom", targets, "15s"))
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
        died = time.time()
        assert "probability tensor" in done.stderr
        assert done.returncode == 1

        for server in (often, seldom):
            for series, expected in (
                ('rl_nonfinite_values_total{metric="rl_value_loss",kind="nan"}', 4),
                ("rl_last_log_step", FAULT),
                ('rl_run_state{state="failed"}', 1),
            ):
                assert server.value(f"last_over_time({series}[1h])") == expected, series
            loss = server.value("last_over_time(rl_value_loss[1h])")
            assert loss is not None
            assert loss != loss

        page = at.page("crash", "RLNotANumber")
        assert page.labels["severity"] == "critical"
        assert re.fullmatch(
            rf"Run crash, rl_weight_norm, step {FAULT}: (1 NaN or infinite value|2 NaN or infinite values)\.",
            page.description,
        )
        holding = 'count(last_over_time(rl_condition{condition=~"nonfinite.*",run="crash"}[1h]) == 1)'
        assert often.value(holding) == 2, "and of the value loss, which is a symptom"
        eventually(lambda: time.time() > died + LATELY + FLAP + UNSEEN)
        assert at.pages("crash") == {"RLNotANumber": "firing"}
        assert not at.told("crash", status="resolved")
        assert often.value('ALERTS{alertstate="firing",alertname="RLNotANumber",run="crash"}') == 1
        fired = often.query('count_over_time(ALERTS{alertstate="firing",severity="critical",run="crash"}[1h])')
        assert {each["metric"]["alertname"] for each in fired} == {"RLNotANumber"}
