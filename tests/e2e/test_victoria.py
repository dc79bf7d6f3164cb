"""The same rules with VictoriaMetrics, which keeps no NaN."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from math import nan
from pathlib import Path

import pytest

from tests.e2e.paging import desk, exporting, rules
from tests.tools import ROOT, Prometheus, free_port, require_victoria, running


def test_vmalert_takes_the_rules() -> None:
    """As they are."""
    command = [str(require_victoria() / "vmalert"), "-dryRun", f"-rule={ROOT / 'alerts/rlexporter.rules.yml'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_nan_pages_where_nan_is_dropped(tmp_path: Path) -> None:
    """The gauge is not there, the alert is, with its step.

    Each rule that reads another's series finds them an evaluation later, new ones after some ten seconds: the step is
    known when the wait of the group is over, as long as it is shipped.
    """
    tools = require_victoria()
    port, database, alerting = free_port(), free_port(), free_port()
    scraped = {"job_name": "rlexporter", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    (tmp_path / "scrape.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}))
    with ExitStack() as stack:
        at = stack.enter_context(desk("new", tmp_path / "desk", group_wait=30))
        stack.enter_context(exporting(port, "a")).log({"loss": 0.1, "grad_norm": nan})
        home = f"http://127.0.0.1:{database}"
        servers = {
            database: [
                str(tools / "victoria-metrics"),
                f"-promscrape.config={tmp_path / 'scrape.yml'}",
                f"-storageDataPath={tmp_path / 'data'}",
                f"-httpListenAddr=127.0.0.1:{database}",
                "-search.latencyOffset=0s",
            ],
            alerting: [
                str(tools / "vmalert"),
                f"-rule={rules(tmp_path)}",
                f"-httpListenAddr=127.0.0.1:{alerting}",
                *(f"-datasource.url={home}", f"-remoteWrite.url={home}", "-remoteWrite.flushInterval=1s"),
                f"-notifier.url=http://127.0.0.1:{at.port}",
                "-evaluationInterval=1s",
                "-rule.evalDelay=0s",
            ],
        }
        for listening, command in servers.items():
            folder = tmp_path / str(listening)
            folder.mkdir()
            stack.enter_context(running(command, folder, listening, ready="/health"))
        page = at.page("a", "RLGradientNonFinite")
        assert page.description == "Run a, step 2: 1 NaN or infinite value."
        assert page.labels["severity"] == "critical"
        assert Prometheus(database).value("last_over_time(rl_loss[1m])") == 0.1
        assert Prometheus(database).value("last_over_time(rl_grad_norm[1m])") is None
