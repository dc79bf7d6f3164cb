"""What arrives at a pager, in a chat and in a mailbox, from real servers; writes it into docs/alerts.md.

One run is a real GRPO training in which a reward becomes NaN. Thirteen more, in another cluster, get a NaN gradient at
once. Rules, template and routes are as `rlexporter generate --grafana-url` writes them; only receivers are our own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.message import Message
from math import nan
from pathlib import Path
from typing import Any

from rlexporter.commands.generate import pack
from tests.e2e.paging import exporting
from tests.e2e.runs import start
from tests.generate.test_alertmanager import mail_server
from tests.tools import ROOT, Webhook, alertmanager, eventually, free_port, free_ports, prometheus, switched_on

PAGE = ROOT / "docs/alerts.md"
BEGIN, END = "<!-- as it arrived -->\n", "<!-- end of what arrived -->\n"
RUN, LABELS = "qwen-7b-math", "cluster=eu,namespace=rl,user=ada,team=post-training"
STORM = tuple(f"sweep-{number:02}" for number in range(13))
WAIT_SECONDS = 300
ADDRESS = "https://alertmanager.example.org"


@dataclass
class Desk:
    """An Alertmanager, and all that it told."""

    port: int
    webhook: Webhook
    mails: list[Message]

    def pager(self, title: str) -> dict[str, Any] | None:
        """The last event with this in its title; None before there is one."""
        found = [each for each in self.webhook.bodies("/pagerduty") if title in each["payload"]["summary"]]
        return found[-1] if found else None

    def chat(self, title: str) -> dict[str, Any]:
        """The last message."""
        found: list[dict[str, Any]] = self.webhook.bodies("/slack")
        return [each for each in found if title in each["attachments"][0]["title"]][-1]

    def mail(self, title: str) -> Message:
        return [each for each in self.mails if title in str(each["Subject"])][-1]


def main() -> None:
    """Ask the servers, and write the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    if not after:
        raise SystemExit(f"no place in {PAGE}")
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(before + BEGIN + "\n" + "\n".join(arrived(Path(folder))) + "\n" + END + after)


def arrived(folder: Path) -> Iterator[str]:
    """The messages, as Markdown."""
    files = pack(grafana_url="https://grafana.example.org")
    rules = folder / "rules.yml"
    rules.write_text(files["alerts/rlexporter.rules.yml"])
    with ExitStack() as stack:
        port, ports = free_port(), free_ports(STORM)
        desks = {kind: stack.enter_context(_desk(kind, folder / kind, files)) for kind in ("new", "old")}
        stack.enter_context(_training(folder / "training", port))
        runs = [stack.enter_context(exporting(ports[run], run, labels={"cluster": "us"})) for run in STORM]
        targets = [f"127.0.0.1:{each}" for each in (port, *ports.values())]
        told = [each.port for each in desks.values()]
        server = stack.enter_context(prometheus("3", folder / "server", targets, rules=rules, alertmanagers=told))
        eventually(lambda: server.value("count(rl:run_state)") == len(targets), WAIT_SECONDS)
        eventually(lambda: server.value(f'rl_last_good_checkpoint_step{{run="{RUN}"}} >= 5'), WAIT_SECONDS)
        (folder / "training/fault").touch()
        for run in runs:
            run.log({"loss": 0.1, "grad_norm": nan})
        for each in desks.values():
            eventually(lambda each=each: each.pager(RUN), WAIT_SECONDS)
            eventually(lambda each=each: each.pager("and 3 more"), WAIT_SECONDS)
            eventually(lambda each=each: len(each.mails) > 1, WAIT_SECONDS)
        yield from _shown(desks)


def _shown(desks: dict[str, Desk]) -> Iterator[str]:
    new, old = desks["new"], desks["old"]
    event, mail = _event(new, RUN), new.mail(RUN)
    (chat,), (storm,) = (new.chat(title)["attachments"] for title in (RUN, "and 3 more"))
    (part,) = (part for part in mail.walk() if part.get_content_type() == "text/plain")
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    text = content.decode().replace("\r\n", "\n").strip()
    told = [each["payload"]["custom_details"]["firing"] for each in (event, _event(old, RUN))]
    assert {*told, chat["text"]} == {text}, "the text is not the same everywhere"
    assert {chat["title"], event["payload"]["summary"]} == {mail["Subject"]}
    yield "The mail:\n"
    yield from _block("", f"Subject: {mail['Subject']}\nTo: {mail['To']}\n\n{text}")
    yield "Slack has its subject as title and its text as text, in red. PagerDuty, from Alertmanager 0.33.1:\n"
    yield from _block("json", json.dumps(event, indent=2))
    yield "From 0.25 the text is the same, and the counts beside it are texts:\n"
    details = _event(old, RUN)["payload"]["custom_details"]
    yield from _block("json", json.dumps({name: details[name] for name in details if name != "firing"}, indent=2))
    yield "Thirteen runs at once, in Slack:\n"
    yield from _block("", f"{storm['title']}\n\n{storm['text']}")


def _event(desk: Desk, title: str) -> dict[str, Any]:
    """What PagerDuty shows of an event."""
    event = desk.pager(title)
    assert event
    return {
        "event_action": event["event_action"],
        "payload": {name: event["payload"][name] for name in ("summary", "severity", "custom_details")},
        "client": event["client"],
        "client_url": event["client_url"],
    }


def _block(kind: str, text: str) -> list[str]:
    return [f"```{kind}", text.strip(), "```\n"]


@contextmanager
def _training(folder: Path, port: int) -> Iterator[None]:
    os.environ["RLEXPORTER_RUN"] = RUN
    training = start(folder, port, "wait", "--fault", "reward", "--labels", LABELS)
    del os.environ["RLEXPORTER_RUN"]
    try:
        yield
    finally:
        training.process.kill()
        training.process.wait()


@contextmanager
def _desk(kind: str, folder: Path, files: dict[str, str]) -> Iterator[Desk]:
    folder.mkdir()
    (folder / "rlexporter.tmpl").write_text(files["alerts/rlexporter.tmpl"])
    with Webhook() as webhook, mail_server() as (mail_port, mails):
        home = f"http://127.0.0.1:{webhook.port}"
        for name, secret in (("pagerduty_key", "key"), ("slack_url", f"{home}/slack"), ("smtp_password", "secret")):
            (folder / name).write_text(secret)
        config = switched_on(files["alerts/alertmanager.yml"])
        for old, new in {
            "http://127.0.0.1:9099": home,
            "/etc/alertmanager/secrets": str(folder),
            "routing_key_file:": f"url: {home}/pagerduty\n        routing_key_file:",
            "smarthost: smtp.example.org:587": f"require_tls: false\n        smarthost: 127.0.0.1:{mail_port}",
        }.items():
            assert old in config, old
            config = config.replace(old, new)
        with alertmanager(kind, folder, config, options=[f"--web.external-url={ADDRESS}"]) as server:
            yield Desk(server.port, webhook, mails)


if __name__ == "__main__":
    main()
