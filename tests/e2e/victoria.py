"""VictoriaMetrics that scrapes, or takes pushes, and its vmalert with our rules."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tools import ROOT, Prometheus, each_second, free_port, require_victoria, running

RULES = ROOT / "alerts/rlexporter.rules.yml"
RELABEL = ROOT / "deploy/victoria-metrics/relabel.yml"


@contextlib.contextmanager
def database(folder: Path, *flags: str) -> Iterator[Prometheus]:
    """A VictoriaMetrics on a free port, which answers as Prometheus does."""
    port = free_port()
    folder.mkdir()
    command = [
        str(require_victoria() / "victoria-metrics"),
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        *("-search.latencyOffset=0s", "-search.minStalenessInterval=5s"),
        *flags,
    ]
    with running(command, folder, port, ready="/health"):
        yield Prometheus(port)


def scraping(
    folder: Path, targets: Sequence[str], interval: str = "3s"
) -> contextlib.AbstractContextManager[Prometheus]:
    """One that scrapes these targets."""
    config = folder.with_suffix(".yml")
    scraped = {"job_name": "rlexporter", "static_configs": [{"targets": list(targets)}]}
    pace = {"scrape_interval": interval, "scrape_timeout": interval}
    config.write_text(json.dumps({"global": pace, "scrape_configs": [scraped]}))
    return database(folder, f"-promscrape.config={config}")


def receiving(folder: Path) -> contextlib.AbstractContextManager[Prometheus]:
    """One that takes pushes, and names them as Prometheus does."""
    return database(folder, "-opentelemetry.usePrometheusNaming", f"-relabelConfig={RELABEL}")


def settle(at: Prometheus) -> None:
    """Let a database find what it was just given; asked earlier, it says for ten seconds that a series is not there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{at.port}/internal/force_flush", timeout=600) as response:
        assert response.status == 200


@contextlib.contextmanager
def alerting(folder: Path, at: Prometheus, rules: Path = RULES, *, pager: int = 0) -> Iterator[Prometheus]:
    """A vmalert that judges what is in this database by these rules each second, and writes there what it finds.

    ``pager``: the port of the Alertmanager that it sends alerts to, if there is one.
    """
    port, home = free_port(), f"http://127.0.0.1:{at.port}"
    folder.mkdir()
    command = [
        str(require_victoria() / "vmalert"),
        f"-rule={each_second(rules, folder)}",
        f"-httpListenAddr=127.0.0.1:{port}",
        *(f"-datasource.url={home}", f"-remoteWrite.url={home}", "-remoteWrite.flushInterval=200ms"),
        f"-notifier.url=http://127.0.0.1:{pager}" if pager else "-notifier.blackhole",
        "-evaluationInterval=1s",
        "-rule.evalDelay=0s",
    ]
    with running(command, folder, port, ready="/health"):
        yield Prometheus(port)
