"""The same rules with VictoriaMetrics, which keeps no NaN."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest

from tests.e2e.paging import desk, exporting, rules
from tests.e2e.victoria import alerting, scraping
from tests.tools import free_port

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def test_a_nan_pages_where_nan_is_dropped(tmp_path: Path) -> None:
    """The gauge is not there, the alert is, with its step.

    Each rule that reads another's series finds them an evaluation later, new ones after some ten seconds: the step is
    known when the wait of the group is over, as long as it is shipped.
    """
    port = free_port()
    with (
        desk("new", tmp_path / "desk", group_wait=30) as at,
        exporting(port, "a") as exporter,
        scraping(tmp_path / "database", [f"127.0.0.1:{port}"], "1s") as database,
        alerting(tmp_path / "alerting", database, rules(tmp_path), pager=at.port),
    ):
        exporter.log({"loss": 0.1, "grad_norm": nan})
        page = at.page("a", "RLGradientNonFinite")
        assert page.description == "Run a, step 2: 1 NaN or infinite value."
        assert page.labels["severity"] == "critical"
        assert database.value("last_over_time(rl_loss[1m])") == 0.1
        assert database.value("last_over_time(rl_grad_norm[1m])") is None
