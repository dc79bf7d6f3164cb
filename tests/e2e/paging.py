"""The way of a page: a real Prometheus with our rules, a real Alertmanager with our configuration, and who is called.

Both files are as committed, but in them a minute is five seconds; TEST_MINUTE_SECONDS=60 makes it a real one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlexporter import Exporter
from tests.tools import ROOT, Prometheus, Webhook, alertmanager, eventually, free_port, prometheus, switched_on

MINUTE = int(os.environ.get("TEST_MINUTE_SECONDS", "5"))
"""Seconds that stand for one minute of the committed rules."""
UNSEEN = 3.5 * MINUTE
"""After so many seconds a run that was training has vanished."""
LATELY, FLAP = 10 * MINUTE, 5 * MINUTE
"""For how many seconds a condition of one step is an alert, and for how many more, as if it flapped."""
REAL = MINUTE == 60
GROUP_WAIT = 30 if REAL else 4
SOON = 2 * 1 + 1 + GROUP_WAIT
"""Two scrapes, an evaluation and the group wait: what a page may take at most on a machine that does nothing else."""
SLACK = 60 if REAL else 600
"""For a machine that is busy: how fast a page is can only be told where minutes are real ones."""

TIMES = (
    *("< time() - 90", "time() - 120)", "> 120", "> 300", "> time() - 600", "< time() - 600", "< time() - 300"),
    *("> time() - 900", "> time() - 86400", "< time() - 3600", "+ 60", "> 1800"),
)
"""Seconds in the rules that stand for themselves; ranges, offsets and waits are found by their form."""
AWAY = 40 if REAL else 12
"""For so many seconds without an evaluation Prometheus was away; a busy machine may miss some of one second."""
CONFIG = {
    "group_wait: 10s": "group_wait: 2s",
    "group_interval: 30s": "group_interval: 1s",
    "group_interval: 1m": "group_interval: 1s",
    "group_interval: 5m": "group_interval: 1s",
    "repeat_interval: 1m": "repeat_interval: 1s",
}
"""The wait of a storm is longer than a scrape here: its first message then names whoever broke at the same time."""
OTHERS = ("email", "slack")
"""Receivers that have nobody to talk to here."""


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """The text with these changes, each of which there must be."""
    for old, new in changes.items():
        assert old in text, f"there is no {old} to make shorter"
        text = text.replace(old, new)
    return text


def rules(folder: Path, pack: Path = ROOT) -> Path:
    """The rules, with shorter times; ``pack``: that of a site."""
    text = (pack / "alerts/rlexporter.rules.yml").read_text()
    text = replaced(text, {"_timestamp_seconds[1h]) > 40": f"_timestamp_seconds[1h]) > {AWAY}"})
    text = replaced(
        text, {each: re.sub(r"\d+", lambda found: f"{int(found[0]) * MINUTE / 60:g}", each) for each in TIMES}
    )
    text = re.sub(r"(?<=\[)\d+[mh](?=\])|(?<=offset )\d+[mh]|(?<=for: )\d+[mh]", lambda found: _shorter(found[0]), text)
    assert not re.search(r"\[\d+[mhd]\]", re.sub(r"_url: .*", "", text)), "times that nobody made shorter"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rlexporter.rules.yml"
    file.write_text(text)
    return file


def _shorter(time: str) -> str:
    return f"{int(time[:-1]) * {'m': 1, 'h': 60}[time[-1]] * MINUTE}s"


def config(folder: Path, webhook: Webhook, group_wait: int = GROUP_WAIT, pack: Path = ROOT) -> str:
    """The configuration of Alertmanager, with shorter times and this webhook; its template goes into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rlexporter.tmpl").write_text((pack / "alerts/rlexporter.tmpl").read_text())
    text = switched_on((pack / "alerts/alertmanager.yml").read_text())
    home = f"http://127.0.0.1:{webhook.port}"
    pager = {
        "routing_key_file: /etc/alertmanager/secrets/pagerduty_key": f"url: {home}/pager\n        routing_key: key"
    }
    wait = {"group_wait: 30s": f"group_wait: {group_wait}s"}
    text = replaced(text, {**({} if REAL else CONFIG), **wait, **pager, "http://127.0.0.1:9099": home})
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


@dataclass
class Desk:
    """An Alertmanager, old or new, and who is called by it."""

    generation: str
    folder: Path
    webhook: Webhook
    group_wait: int = GROUP_WAIT
    """Seconds."""
    pack: Path = ROOT
    port: int = field(default_factory=free_port)
    _open: ExitStack = field(default_factory=ExitStack)

    def begin(self) -> None:
        """Start Alertmanager; with what it knew, if it was stopped."""
        text = config(self.folder, self.webhook, self.group_wait, self.pack)
        self._open.enter_context(alertmanager(self.generation, self.folder, text, self.port))

    def end(self) -> None:
        """Stop it."""
        self._open.close()

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

    def incidents(self) -> dict[str, list[str]]:
        """The titles of each incident that is open, as PagerDuty has them: it closes one when it hears "resolve"."""
        opened: dict[str, list[str]] = {}
        for event in self.webhook.bodies("/pager"):
            if event["event_action"] == "resolve":
                opened.pop(event["dedup_key"], None)
            else:
                opened.setdefault(event["dedup_key"], []).append(event["payload"]["summary"])
        return opened

    def pages(self, run: str) -> dict[str, str]:
        """The last status of each alert of which pages have told."""
        return {
            each["labels"]["alertname"]: each["status"]
            for body in self.webhook.bodies("/page")
            for each in body["alerts"]
            if each["labels"].get("run", "") == run
        }


@contextmanager
def desk(generation: str, folder: Path, group_wait: int = GROUP_WAIT, pack: Path = ROOT) -> Iterator[Desk]:
    """An Alertmanager, old or new, and a webhook that it calls."""
    with Webhook() as webhook:
        found = Desk(generation, folder, webhook, group_wait, pack)
        found.begin()
        try:
            yield found
        finally:
            found.end()


def chain(
    generation: str, folder: Path, targets: Sequence[int], at: Desk, replica: str = "", scrape: int = 1
) -> AbstractContextManager[Prometheus]:
    """A Prometheus with our rules that scrapes these ports every ``scrape`` seconds, and sends alerts to this desk."""
    return prometheus(
        generation,
        folder,
        [f"127.0.0.1:{port}" for port in targets],
        rules=rules(folder),
        alertmanagers=[at.port],
        replica=replica,
        scrape={"scrape_interval": f"{scrape}s", "scrape_timeout": f"{scrape}s"},
        # For five minutes a series of a server that went away is still there when it is back.
        options=[f"--query.lookback-delta={5 * MINUTE}s"],
    )


@contextmanager
def exporting(port: int, run: str, **settings: Any) -> Iterator[Exporter]:
    """An exporter in this process, for hand-made log lines; it ends as if the process were killed."""
    patient = {"run_stalled": 36_000.0}  # in real minutes as well nobody logs for half an hour
    exporter = Exporter(run=run, port=port, algorithm="grpo", thresholds=patient, **settings).start()
    exporter.log({"loss": 0.1, "grad_norm": 1.0})
    try:
        yield exporter
    finally:
        exporter.close()
