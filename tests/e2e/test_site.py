"""A platform team's way: the pack for a site with labels of its own, in real servers, until a message is read."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from math import nan
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.grafana import Json, View, asking, loaded, panel, variable
from tests.dashboards.grafana import answer as asked
from tests.e2e import paging
from tests.programs import printed
from tests.tools import ALERTMANAGERS, GENERATIONS, Prometheus, eventually, free_ports, prometheus

pytestmark = pytest.mark.waits

GRAFANA = "https://grafana.example.org"
SITE = (
    *("--job", "train", "--cluster-label", "region", "--namespace-label", "tenant"),
    *("--match", 'env="prod"', "--match", 'tier!~"old|test"', "--grafana-url", GRAFANA),
)
TARGETS = {
    "sick": ("mine", {"env": "prod", "region": "east", "tenant": "rl"}),
    "well": ("mine", {"env": "prod", "region": "west", "tenant": "rl"}),
    "test": ("other", {"env": "test", "region": "east", "tenant": "rl"}),
    "old": ("older", {"env": "prod", "region": "east", "tenant": "rl", "tier": "old"}),
}
"""By what happens to them: the name of a run, and what its target is called. All but one of them break."""


@pytest.mark.slow
@pytest.mark.parametrize(("generation", "alertmanager"), [*zip(GENERATIONS, ALERTMANAGERS, strict=True)])
def test_a_site_with_labels_of_its_own(generation: str, alertmanager: str, tmp_path: Path) -> None:
    """Who breaks is told by the site's names, with a link to a dashboard that shows it; who does not match is not."""
    pack = tmp_path / "pack"
    printed(sys.executable, "-m", "rlexporter", "generate", "--out", pack, *SITE)
    ports = free_ports(TARGETS)
    found = [{"targets": [f"127.0.0.1:{ports[name]}"], "labels": labels} for name, (_, labels) in TARGETS.items()]
    with ExitStack() as stack:
        runs = {name: stack.enter_context(paging.exporting(ports[name], run)) for name, (run, _) in TARGETS.items()}
        desk = stack.enter_context(paging.desk(alertmanager, tmp_path / "desk", pack=pack))
        server = stack.enter_context(
            prometheus(
                generation,
                tmp_path / "prometheus",
                [],
                rules=paging.rules(tmp_path, pack),
                alertmanagers=[desk.port],
                scrape={"job_name": "train", "static_configs": found},
            )
        )
        eventually(lambda: len(server.query("rl_step")) == len(TARGETS))
        for name, exporter in runs.items():
            exporter.log({"loss": 0.1, "grad_norm": 1.0 if name == "well" else nan}, step=7)
        page = desk.page("mine", "RLNotANumber")
        assert {**TARGETS["sick"][1], "run": "mine"}.items() <= page.labels.items()
        assert page.description.startswith("Run mine, rl_grad_norm, step 7: ")
        _the_message(desk)
        _the_dashboard(server, pack)
        assert {each["metric"]["run"] for each in server.query("rl:run_last_seen_timestamp_seconds")} == {"mine"}
        assert {each["labels"]["run"] for body in desk.webhook.bodies("/page") for each in body["alerts"]} == {"mine"}


def _the_message(desk: paging.Desk) -> None:
    """What a pager shows has the place of the run; the link chooses it."""
    [[title, *_]] = eventually(lambda: [*desk.incidents().values()])
    assert "mine" in title
    assert "east/rl" in title
    [body, *_] = desk.webhook.bodies("/page")
    [link] = {each["annotations"]["dashboard_url"] for each in body["alerts"]}
    assert link == f"{GRAFANA}/d/rlexporter-run?var-run=mine&var-region=east&var-tenant=rl&var-job=train"


def _the_dashboard(server: Prometheus, pack: Path) -> None:
    """Two runs of one name do not mix, although nobody has chosen a region; the other two are not to be seen."""
    dashboard = loaded(json.loads((pack / "grafana/dashboards/rlexporter-run.json").read_text()))
    places = {"region": ".*", "tenant": ".*"}
    view = View({**places, "job": "train", "run": ".+", "datasource": "prometheus"}, 60.0, 1.0)
    for name in places:
        query = variable(dashboard, name)["query"]["query"]
        assert query == f'label_values(rl_run_info{{job=~"$job",env="prod",tier!~"old|test"}}, {name})'

    def shown(title: str, label: str = "") -> Any:
        of: Json = panel(dashboard, title)
        found = asked(asking(server), view, of, of["targets"][0], time.time())
        return {
            each["metric"]["region"]: each["metric"].get(label)
            or (each["values"][-1] if "values" in each else each["value"])[1]
            for each in found
        }

    eventually(lambda: shown("Verdict") == {"east": "2", "west": "0"})
    eventually(
        lambda: shown("State", "state") == {"east": "running", "west": "running"}
    )  # a busy machine may miss a scrape
    assert shown("Step") == {"east": "7", "west": "7"}
    assert [*shown("Wrong now")] == ["east"]
