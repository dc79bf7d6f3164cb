"""The way of a page: a real Prometheus with our rules, a real Alertmanager with our configuration, and who is called.

Both files are as committed, but in them minutes are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlexporter import Exporter
from tests.tools import ROOT, Alertmanager, Prometheus, Webhook, alertmanager, eventually, prometheus

UNSEEN, BEFORE_PAGE, LATELY, KEPT = 10, 8, 20, 30
"""In seconds: a run is unreachable; and is paged; a condition of one step is an alert; a dead process's samples count.

In the committed rules 2 minutes, 1 minute, 10 minutes and 15 minutes. The second cannot be shorter: Prometheus begins
to evaluate when it starts, and to scrape up to five seconds later.
"""
GROUP_WAIT = 4
SOON = 2 * 1 + 1 + GROUP_WAIT
"""Two scrapes, an evaluation and the group wait: what a page may take at most on a machine that does nothing else."""
SLACK = 60
"""For a machine that is busy. How fast a page is on a quiet one is not tested here."""

RULES = {
    "[2m]": f"[{UNSEEN}s]",
    "for: 1m": f"for: {BEFORE_PAGE}s",
    "time() - 600": f"time() - {LATELY}",
    "[15m]": f"[{KEPT}s]",
    "[30m]": "[60s]",
    "[5m]": "[10s]",
}
CONFIG = {
    "group_wait: 30s": f"group_wait: {GROUP_WAIT}s",
    "group_wait: 10s": "group_wait: 1s",
    "group_interval: 30s": "group_interval: 1s",
    "group_interval: 5m": "group_interval: 1s",
    "repeat_interval: 1m": "repeat_interval: 1s",
}
OTHERS = ("pagerduty", "email", "slack")
"""Receivers that have nobody to talk to here."""


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """The text with these changes, each of which there must be."""
    for old, new in changes.items():
        assert old in text, f"there is no {old} to make shorter"
        text = text.replace(old, new)
    return text


def rules(folder: Path) -> Path:
    """The rules, with shorter times."""
    text = replaced((ROOT / "alerts/rlexporter.rules.yml").read_text(), RULES)
    assert set(re.findall(r"\[\d+[mhd]\]", text)) == {"[1h]"}, "times that nobody made shorter"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rlexporter.rules.yml"
    file.write_text(text)
    return file


def config(folder: Path, webhook: Webhook) -> str:
    """The configuration of Alertmanager, with shorter times and this webhook; its template goes into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rlexporter.tmpl").write_text((ROOT / "alerts/rlexporter.tmpl").read_text())
    text = (ROOT / "alerts/alertmanager.yml").read_text()
    text = replaced(text, {**CONFIG, "http://127.0.0.1:9099": f"http://127.0.0.1:{webhook.port}"})
    for receiver in OTHERS:
        text, found = re.subn(rf"    {receiver}_configs:\n(      .*\n)+", "", text)
        assert found, receiver
    return text


@dataclass(frozen=True)
class Told:
    """One alert in one call of the webhook."""

    status: str
    labels: dict[str, str]
    description: str
    at: float
    """Seconds since the epoch."""
    call: int
    """Which call at this path it came with."""


@dataclass(frozen=True)
class Desk:
    """An Alertmanager, and who is called by it."""

    server: Alertmanager
    webhook: Webhook

    def told(self, run: str, alert: str = "", status: str = "firing", path: str = "/page") -> list[Told]:
        """What was told of a run so far, once for each call that it was in; any alert where none is named."""
        return [
            Told(each["status"], each["labels"], each["annotations"]["description"], body["receivedAt"], number)
            for number, body in enumerate(self.webhook.bodies(path))
            for each in body["alerts"]
            if each["labels"].get("run", "") == run
            and each["status"] == status
            and alert in ("", each["labels"]["alertname"])
        ]

    def page(self, run: str, alert: str, status: str = "firing", seconds: float = 600) -> Told:
        """The first page that tells this of a run, once it has come."""
        found: list[Told] = eventually(lambda: self.told(run, alert, status), seconds)
        return found[0]

    def pages(self, run: str) -> dict[str, str]:
        """The last status of each alert of which pages have told."""
        return {
            each["labels"]["alertname"]: each["status"]
            for body in self.webhook.bodies("/page")
            for each in body["alerts"]
            if each["labels"].get("run", "") == run
        }


@contextmanager
def desk(generation: str, folder: Path) -> Iterator[Desk]:
    """An Alertmanager, old or new, and a webhook that it calls."""
    with Webhook() as webhook, alertmanager(generation, folder, config(folder, webhook)) as server:
        yield Desk(server, webhook)


@contextmanager
def chain(generation: str, folder: Path, targets: Sequence[int], at: Desk, replica: str = "") -> Iterator[Prometheus]:
    """A Prometheus with our rules that scrapes these ports, and sends alerts to this desk."""
    with prometheus(
        generation,
        folder,
        [f"127.0.0.1:{port}" for port in targets],
        rules=rules(folder),
        alertmanagers=[at.server.port],
        replica=replica,
    ) as server:
        yield server


@contextmanager
def exporting(port: int, run: str, **settings: Any) -> Iterator[Exporter]:
    """An exporter in this process, for hand-made log lines; it ends as if the process were killed."""
    exporter = Exporter(run=run, port=port, algorithm="grpo", **settings).start()
    exporter.log({"loss": 0.1, "grad_norm": 1.0})
    try:
        yield exporter
    finally:
        exporter.close()
