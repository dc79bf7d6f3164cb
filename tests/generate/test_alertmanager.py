"""The configuration of Alertmanager in real ones: who is told, what hides what, how it reads.

All cases are played in one of each generation; what else is asked, is asked of the newest.
"""

from __future__ import annotations

import email
import json
import re
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rlexporter.commands.generate import IDENTITY
from scripts.pack.alertmanager import config, messages
from scripts.pack.outside import MANY_RUNS, WATCHDOG
from tests.programs import printed
from tests.tools import (
    EACH_ALERTMANAGER,
    Alertmanager,
    Webhook,
    alertmanager,
    eventually,
    require_alertmanager,
    switched_on,
)

pytestmark = pytest.mark.waits
STORM = MANY_RUNS.alert
ORDER = ("first", "second", "third")
CONFIG = config(((("crash", "nonfinite"), ("stall", "kl_high")), (("stall",), ("slow",))), ORDER)
PAST = "2020-01-01T00:00:00Z"


def alert(name: str, severity: str, family: str = "", **labels: str) -> dict[str, Any]:
    """One as Prometheus sends it."""
    labels |= {"alertname": name, "severity": severity} | ({"family": family} if family else {})
    annotations = {
        "summary": f"{name} is the matter.",
        "description": "kl is 7 at step 12.",
        "action": "Stop the run.",
        "runbook_url": "http://docs/a.md",
        "dashboard_url": "http://g/d/a?var-run=a",
        "panel_url": "http://g/d/a?var-run=a&viewPanel=7",
    }
    return {"labels": labels, "annotations": annotations}


def cause(severity: str = "critical", **labels: str) -> dict[str, Any]:
    """One that hides `symptom` of the same run."""
    return alert("RLNonFinite", severity, "nonfinite", **labels)


def symptom(severity: str = "critical", **labels: str) -> dict[str, Any]:
    """One that `cause` hides."""
    return alert("RLKL", severity, "kl_high", **labels)


def nan(name: str, condition: str, run: str) -> dict[str, Any]:
    """One of those that have an order."""
    return alert(name, "critical", "nan", run=run, condition=condition)


@dataclass(frozen=True)
class Case:
    """Alerts in the order in which they come, and which of them are told where."""

    alerts: list[dict[str, Any]]
    told: set[tuple[str, str]]


BROKEN: list[dict[str, str]] = [{"cluster": "many", "run": f"sick-{i:02}", "condition": "stalled"} for i in range(12)]
ELSEWHERE = [{**of, "cluster": "elsewhere", "team": team} for team in ("x", "y") for of in BROKEN[:3]]
SICK = [alert("RLStalled", "critical", "stall", **of) for of in BROKEN]
CASES = {
    "cause first": Case([cause(run="a"), symptom(run="a")], {("page", "RLNonFinite")}),
    "symptom first": Case([symptom(run="b"), cause(run="b")], {("page", "RLNonFinite")}),
    "hides what is milder": Case([symptom("warning", run="c"), cause(run="c")], {("page", "RLNonFinite")}),
    "warning hides warning": Case([cause("warning", run="d"), symptom("warning", run="d")], {("chat", "RLNonFinite")}),
    "warning does not hide critical, and waits": Case(
        [cause("warning", run="e"), symptom(run="e")], {("page", "RLKL")}
    ),
    "another run": Case([cause(run="g-1"), symptom("warning", run="g-2")], {("page", "RLNonFinite"), ("chat", "RLKL")}),
    "another namespace": Case(
        [cause(run="h", namespace="one"), symptom("warning", run="h", namespace="two")],
        {("page", "RLNonFinite"), ("chat", "RLKL")},
    ),
    "another cluster": Case(
        [cause(run="i", cluster="one"), symptom("warning", run="i", cluster="two")],
        {("page", "RLNonFinite"), ("chat", "RLKL")},
    ),
    "without a run": Case(
        [cause(namespace="j"), cause("warning", namespace="j"), symptom("warning", namespace="j")],
        {("page", "RLNonFinite"), ("chat", "RLNonFinite"), ("chat", "RLKL")},
    ),
    "critical and warnings are one message": Case(
        [
            cause("warning", run="k", condition="other"),
            cause(run="k", condition="one"),
            alert("RLGradient", "warning", "grad", run="k"),
        ],
        {("page", "RLNonFinite")},
    ),
    "what a warning says of the process is told all the same": Case(
        [
            cause(run="u"),
            alert("RLRunFailed", "warning", "crash", run="u"),
            alert("RLExporterErrors", "warning", "exporter", run="u"),
        ],
        {("page", "RLNonFinite"), ("chat", "RLRunFailed"), ("chat", "RLExporterErrors")},
    ),
    "hidden by what is hidden": Case(
        [cause(run="l"), alert("RLStalled", "critical", "stall", run="l"), alert("RLSlow", "warning", "slow", run="l")],
        {("page", "RLNonFinite")},
    ),
    "one page for a run": Case(
        [cause(run="m"), alert("RLGradient", "critical", "grad", run="m")],
        {("page", "RLNonFinite"), ("page", "RLGradient")},
    ),
    "the first of an order": Case(
        [nan("RLC", "third", "r"), nan("RLA", "first", "r"), nan("RLB", "second", "r")], {("page", "RLA")}
    ),
    "the first of an order that is there": Case(
        [nan("RLC", "third", "s"), nan("RLB", "second", "s")], {("page", "RLB")}
    ),
    "an order in two runs": Case(
        [nan("RLC", "third", "t-1"), nan("RLA", "first", "t-2")],
        {("page", "RLC"), ("page", "RLA")},
    ),
    "many ranks": Case([cause(run="n") for _ in range(512)], {("page", "RLNonFinite")}),
    "many runs": Case(
        [
            *SICK,
            *(alert(STORM, "critical", "storm", **of) for of in BROKEN),
            alert("RLLater", "critical", "late", cluster="many", run="sick-03", condition="later"),
            alert("RLExporterErrors", "warning", "exporter", cluster="many"),
        ],
        {("page", STORM), ("page", "RLLater"), ("chat", "RLExporterErrors")},
    ),
    "the storm first": Case(
        [alert(STORM, "critical", "storm", **of) for of in ELSEWHERE]
        + [alert("RLStalled", "critical", "stall", **of) for of in ELSEWHERE],
        {("page", STORM)},
    ),
    "a storm of warnings": Case(
        [alert("RLKL", "warning", "kl", **of, namespace="y") for of in BROKEN[:6]]
        + [alert(STORM, "warning", "storm", **of, namespace="y") for of in BROKEN[:6]],
        {("chat", STORM)},
    ),
    "one of a storm of warnings gets worse": Case(
        [alert(STORM, "warning", "storm", **of, namespace="z") for of in BROKEN[:6]]
        + [alert("RLKL", "warning", "kl", **of, namespace="z") for of in BROKEN[:6]]
        + [alert("RLKL", "critical", "kl", **BROKEN[2], namespace="z")],
        {("chat", STORM), ("page", "RLKL")},
    ),
    "not ours": Case(
        [
            cause(run="p"),
            alert("NodeDown", "critical", "kl_high", run="p"),
            alert("DiskFull", "critical", cluster="many", run="p"),
        ],
        {("page", "RLNonFinite"), ("foreign", "NodeDown"), ("foreign", "DiskFull")},
    ),
    "watchdog": Case([alert(WATCHDOG, "none")], {("heartbeat", WATCHDOG)}),
    "hidden until its cause ends": Case(
        [cause(run="q"), symptom("warning", run="q")], {("page", "RLNonFinite"), ("chat", "RLKL")}
    ),
}
SHARED = {"cluster": "c", "namespace": "n", "job": "rl", "run": "shared"}
X, Y = {**SHARED, "team": "x"}, {**SHARED, "team": "y"}
TWO = {
    "two teams: critical of one, warning of the other": Case(
        [symptom(**X, condition="kl_high"), symptom("warning", **Y, condition="kl_high")],
        {("page", "RLKL"), ("chat", "RLKL")},
    ),
    "two teams: NaN of one, another fault of the other": Case(
        [cause(**X), symptom(**Y)], {("page", "RLNonFinite"), ("page", "RLKL")}
    ),
    "two teams: the first of an order, and the last": Case(
        [alert("RLFirst", "critical", "nan", **X), alert("RLThird", "critical", "nan", **Y)],
        {("page", "RLFirst"), ("page", "RLThird")},
    ),
    "two teams: warnings of each": Case(
        [cause("warning", **X), symptom("warning", **Y)], {("chat", "RLNonFinite"), ("chat", "RLKL")}
    ),
    "two teams: a storm of one": Case(
        [
            alert(STORM, "warning", "storm", **X, condition="kl_high"),
            symptom("warning", **X, condition="kl_high"),
            symptom("warning", **Y, condition="kl_high"),
        ],
        {("chat", STORM), ("chat", "RLKL")},
    ),
    "two users": Case(
        [cause(**SHARED, user="ada"), symptom("warning", **SHARED, user="bob")],
        {("page", "RLNonFinite"), ("chat", "RLKL")},
    ),
    "two jobs": Case(
        [cause(**SHARED), symptom("warning", **{**SHARED, "job": "other"})],
        {("page", "RLNonFinite"), ("chat", "RLKL")},
    ),
    "a team, and none": Case([cause(**X), symptom("warning", **SHARED)], {("page", "RLNonFinite"), ("chat", "RLKL")}),
    "no team, and one": Case([cause(**SHARED), symptom("warning", **X)], {("page", "RLNonFinite"), ("chat", "RLKL")}),
    "a team and a user, and the team alone": Case(
        [cause(**X, user="ada"), symptom("warning", **X)], {("page", "RLNonFinite"), ("chat", "RLKL")}
    ),
}
"""Two runs of one name, each with a label that the other has not, or has another value of."""
CASES |= TWO
for _number, _name in enumerate(TWO):
    for _alert in CASES[_name].alerts:
        _alert["labels"]["run"] = f"shared-{_number}"  # cases must not hide each other
for _name, _case in CASES.items():
    for _alert in _case.alerts:
        _alert["labels"]["case"] = _name


@dataclass
class Played:
    """What receivers were sent while all cases were played in one Alertmanager."""

    webhook: Webhook
    mails: list[Message] = field(default_factory=list)

    def alerts(self, case: str, status: str = "firing") -> list[tuple[str, dict[str, str]]]:
        """(receiver, labels) of what was told of a case, once for each message it was in."""
        return [
            (path.strip("/"), told["labels"])
            for path, body in list(self.webhook.received)
            for told in (body.get("alerts", ()) if path not in ("/slack", "/pagerduty") else ())
            if told["labels"]["case"] == case and told["status"] == status
        ]


@pytest.fixture(scope="module", params=EACH_ALERTMANAGER)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All cases at once, since each has to wait; then two causes end."""
    for wait in (4, 20, 60):
        folder: Path = tmp_path_factory.mktemp("alertmanager")
        (folder / "rlexporter.tmpl").write_text(messages())
        with Webhook() as webhook, mail_server() as (mail_port, mails):
            played = Played(webhook, mails)
            with alertmanager(request.param, folder, wired(webhook, mail_port, folder, wait)) as server:
                send(server)
                if webhook.bodies("/page"):
                    continue  # one went out before its cause could come: this machine needs more time
                play(server, played)
                yield played
                return
    pytest.fail("a page went out before its cause could come")


def send(server: Alertmanager) -> None:
    """The alerts of all cases, the first of each before the second."""
    for place in range(max(min(len(case.alerts), 9) for case in CASES.values())):
        server.post(*(case.alerts[place] for case in CASES.values() if place < len(case.alerts)))
    server.post(*(each for case in CASES.values() for each in case.alerts[9:]))


def play(server: Alertmanager, played: Played) -> None:
    """Wait for all that is to be told; two causes end meanwhile."""
    last = cause("warning", run="last", case="last")
    server.post(last)
    eventually(lambda: played.alerts("last"))
    assert ("chat", "RLKL") not in names(played, "hidden until its cause ends")
    ends = [last, CASES["hidden until its cause ends"].alerts[0]]
    server.post(*(end | {"startsAt": PAST, "endsAt": PAST} for end in ends))
    eventually(lambda: played.alerts("last", "resolved"))
    eventually(lambda: len(played.webhook.bodies("/heartbeat")) > 1)
    with suppress(AssertionError):  # what is missing is said by the test of its case
        eventually(lambda: all(case.told <= names(played, name) for name, case in CASES.items()))
    eventually(lambda: any("] m: " in mail["Subject"] for mail in played.mails))
    server.post(CASES["watchdog"].alerts[0] | {"startsAt": PAST, "endsAt": PAST})
    time.sleep(1)


def names(played: Played, case: str) -> set[tuple[str, str]]:
    return {(receiver, labels["alertname"]) for receiver, labels in played.alerts(case)}


def wired(webhook: Webhook, mail_port: int, folder: Path, wait: int) -> str:
    """The configuration in a bigger one, with receivers of this test, and short waits."""
    home = f"http://127.0.0.1:{webhook.port}"
    for name, secret in (("pagerduty_key", "key"), ("slack_url", f"{home}/slack"), ("smtp_password", "secret")):
        (folder / name).write_text(f"{secret}\n")
    return replaced(
        switched_on(CONFIG),
        {
            "http://127.0.0.1:9099": home,
            "/etc/alertmanager/secrets": str(folder),
            "routing_key_file:": f"url: {home}/pagerduty\n        routing_key_file:",
            "smarthost: smtp.example.org:587": f"require_tls: false\n        smarthost: 127.0.0.1:{mail_port}",
            'receiver: "null" # what is not ours': "receiver: foreign\n  group_wait: 1s",
            "receivers:\n": f"receivers:\n  - name: foreign\n    webhook_configs: [url: {home}/foreign]\n",
            "group_wait: 30s": f"group_wait: {wait}s",
            "group_wait: 10s": f"group_wait: {wait}s",
            "group_interval: 30s": "group_interval: 500ms",
            "group_interval: 5m": "group_interval: 500ms",
            "group_interval: 1m": "group_interval: 500ms",
            "repeat_interval: 1m": "repeat_interval: 700ms",
        },
    )


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Message]]]:
    """Keeps the mails that it is sent."""
    mails: list[Message] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                if line.startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    mails.append(email.message_from_bytes(b"".join(iter(self.rfile.readline, b".\r\n"))))
                self.wfile.write(b"250 yes\r\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield int(server.server_address[1]), mails
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_who_is_told(played: Played) -> None:
    """Each case tells those it should, and nobody else."""
    assert {name: names(played, name) for name in CASES} == {name: case.told for name, case in CASES.items()}


def test_one_page(played: Played) -> None:
    """A run with two faults, 512 ranks with one, and many runs at once: one page each."""
    pages = played.webhook.bodies("/page")
    for case, about in (("one page for a run", "RL"), ("many ranks", "RL"), ("many runs", STORM)):
        told = [[(one["labels"]["case"], one["labels"]["alertname"]) for one in page["alerts"]] for page in pages]
        assert sum(any(a == case and b.startswith(about) for a, b in page) for page in told) == 1, case
    assert len(played.alerts("many ranks")) == 1


def test_resolved(played: Played) -> None:
    """What is over is told as over in a chat; a pager and the heartbeat only ever hear of what is firing."""
    assert [receiver for receiver, _ in played.alerts("last", "resolved")] == ["chat"]
    assert {body["status"] for path in ("/heartbeat", "/page") for body in played.webhook.bodies(path)} == {"firing"}
    assert {event["event_action"] for event in played.webhook.bodies("/pagerduty")} == {"trigger"}
    assert not any("resolved" in mail["Subject"] for mail in played.mails)
    titles = [body["attachments"][0]["title"] for body in played.webhook.bodies("/slack")]
    assert "[resolved] last: RLNonFinite" in titles


def test_teams_and_users_are_apart(played: Played) -> None:
    """No message is of two runs of one name, of which each has its own; what each is told has its own label."""
    told = [
        (path, [one["labels"] for one in body["alerts"]])
        for path, body in list(played.webhook.received)
        if path in ("/page", "/chat")
    ]
    for case in TWO:
        of_case = [labels for _, labels in told if labels[0]["case"] == case and labels[0]["alertname"] != STORM]
        identities = [{tuple(each.get(name, "") for name in IDENTITY) for each in labels} for labels in of_case]
        assert [len(each) for each in identities] == [1] * len(identities), case
        assert len(set().union(*identities)) == len(CASES[case].told) or "storm" in case, case


def test_messages(played: Played) -> None:
    """PagerDuty, mail and Slack show the run and what is the matter."""
    text = (
        "*[critical] RLNonFinite*\nRLNonFinite is the matter.\nkl is 7 at step 12.\nFirst: Stop the run.\n"
        "Runbook: http://docs/a.md\nDashboard: http://g/d/a?var-run=a THEN\n"
        "Panel: http://g/d/a?var-run=a&viewPanel=7 THEN"
    )
    events = {event["payload"]["summary"]: event for event in played.webhook.bodies("/pagerduty") if "payload" in event}
    event = events["[critical] h (one): RLNonFinite"]
    assert (event["routing_key"], event["payload"]["severity"]) == ("key", "critical")
    assert silenced(event["payload"]["custom_details"]["firing"]) == (text, matchers(namespace="one", run="h"))
    ten = ", ".join(f"sick-{i:02}" for i in range(10))
    storm = events[f"[critical] many: {STORM}: {ten} and 2 more"]
    said = f"kl is 7 at step 12.\nConditions: stalled\nRuns: {ten} and 2 more\nRunbook: http://docs/a.md\n"
    assert storm["payload"]["custom_details"]["firing"].startswith(f"*[critical] {STORM}*\n{said}Dashboard: ")
    six = ", ".join(f"sick-{i:02} ({team})" for team in "xy" for i in range(3))
    (title,) = (title for title in events if "] elsewhere: " in title)
    assert sorted(title.partition(f"{STORM}: ")[2].split(", ")) == sorted(six.split(", "))
    mails = {mail["Subject"]: mail for mail in played.mails}
    (part,) = (part for part in mails["[critical] m: RLGradient, RLNonFinite"].walk() if not part.is_multipart())
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    both = f"{text.replace('RLNonFinite', 'RLGradient')}\n\n{text}"
    assert silenced(content.decode().replace("\r\n", "\n").strip()) == (both, matchers(run="m"))
    (chat,) = (
        body["attachments"][0]
        for body in played.webhook.bodies("/slack")
        if body["attachments"][0]["title"] == "[warning] h (two): RLKL"
    )
    assert chat["color"] == "warning"
    milder = text.replace("RLNonFinite", "RLKL").replace("critical", "warning")
    assert silenced(chat["text"]) == (milder, matchers(namespace="two", run="h"))
    assert "Silence" not in storm["payload"]["custom_details"]["firing"]


def matchers(**labels: str) -> str:
    """Those that a silence of a run is made of: of a label that it has not, that it is absent."""
    return "{" + ",".join(f"{name}={json.dumps(labels.get(name, ''))}" for name in IDENTITY) + "}"


def silenced(text: str) -> tuple[str, str]:
    """A message without its last line, and the matchers that the page of this link is filled with, as browsers do.

    In place of the time that dashboards show is the word THEN, if it is that of an alert of this test.
    """
    for began, end in re.findall(r"&from=(\d+)&to=(\d+)", text):
        if int(end) - int(began) == (3 * 60 + 2) * 60_000 and 0 < time.time() + 120 - int(end) / 1000 < 600:
            text = text.replace(f"&from={began}&to={end}", " THEN")
    rest, _, link = text.partition("\n\nSilence this run: ")
    address, _, matchers = link.partition("/#/silences/new?filter=")
    assert re.fullmatch(r"http://[^/]+", address)
    return rest, unquote(matchers)


def test_starts_as_it_is(tmp_path: Path) -> None:
    """Without a secret and a mail server it starts, says what is missing, and the webhook is called all the same."""
    with Webhook() as webhook:
        changes = {
            "http://127.0.0.1:9099": f"http://127.0.0.1:{webhook.port}",
            "group_wait: 30s": "group_wait: 0s",
        }
        (tmp_path / "rlexporter.tmpl").write_text(messages())
        with alertmanager("new", tmp_path, replaced(CONFIG, changes)) as server:
            server.post(cause(run="a"))
            eventually(lambda: webhook.bodies("/page"))
            server.post(cause("warning", run="b"))
            eventually(lambda: webhook.bodies("/chat"))


def test_routes(tmp_path: Path) -> None:
    """Each kind of alert has its receiver; with the comments of the example taken off, each owner."""
    opened = re.sub(r"# (- matchers: \['team=|  receiver: chat-)", r"\1", CONFIG)
    assert opened.count("receiver: chat-") == CONFIG.count("#   receiver: chat-") == 4
    path = tmp_path / "alertmanager.yml"
    path.write_text(opened.replace("receivers:\n", "receivers:\n  - name: chat-ada\n  - name: chat-llm\n", 1))
    (tmp_path / "rlexporter.tmpl").write_text(messages())
    assert "1 templates" in amtool("check-config", str(path))
    told = {
        "alertname=RLFirst severity=critical run=a": "page",
        "alertname=RLRunFailed severity=critical run=a": "page",
        "alertname=RLRunVanished severity=critical run=a": "page",
        f"alertname={STORM} severity=critical cluster=a": "page",
        f"alertname={STORM} severity=critical cluster=a team=llm": "page",
        f"alertname={STORM} severity=warning cluster=a team=llm": "chat-llm",
        f"alertname={STORM} severity=warning cluster=a team=llm user=ada": "chat-ada",
        f"alertname={STORM} severity=warning cluster=a team=vision": "chat",
        "alertname=NodeDown severity=critical run=a": "null",
        "alertname=RLKL run=a severity=warning team=llm user=ada": "chat-ada",
        "alertname=RLKL run=a severity=warning team=llm user=bob": "chat-llm",
        "alertname=RLKL run=a severity=warning team=vision user=ada": "chat",
        "alertname=RLKL run=a severity=critical team=llm user=ada": "page",
    }
    for labels, receiver in told.items():
        options = (f"--config.file={path}", f"--verify.receivers={receiver}")
        amtool("config", "routes", "test", *options, *labels.split())


def test_template(tmp_path: Path) -> None:
    """A message of several alerts names each once, the worst severity first; what is over comes last."""
    alerts = [
        symptom("warning", run="a") | {"status": "firing"},
        symptom(run="a", condition="kl_jump") | {"status": "firing"},
        alert("RLGradient", "warning", run="a") | {"status": "firing", "annotations": {}},
        cause(run="a") | {"status": "resolved"},
    ]
    common = {"run": 'a "b" & c/+', "namespace": "team", "severity": "critical", "cluster": "eu", "user": "ada"}
    data = {"status": "firing", "alerts": alerts, "commonLabels": common, "groupLabels": {}, "commonAnnotations": {}}
    data["externalURL"] = "http://am"
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "rlexporter.tmpl").write_text(messages())
    rendered = amtool(
        *("template", "render", f"--template.glob={tmp_path / 'rlexporter.tmpl'}"),
        f"--template.data={tmp_path / 'data.json'}",
        '--template.text={{ template "rlexporter.title" . }}\n{{ template "rlexporter.text" . }}',
    )
    title, *text = rendered.splitlines()
    assert title == f"[critical] {common['run']} (eu/team, user ada): RLKL, RLGradient"
    told = "\n".join(text)
    assert r'{cluster="eu",namespace="team",job="",run="a \"b\" & c/+",team="",user="ada"}' in unquote(told)
    assert "\n\nOwner: ada\nSilence this run: " in told
    assert [line for line in text if line.startswith("*")] == [
        "*[critical] RLKL*",
        "*[warning] RLKL*",
        "*[warning] RLGradient*",
        "*[resolved] RLNonFinite*",
    ]


def test_no_family_hides_itself() -> None:
    """Where two would hide each other, nobody would be told: that is refused."""
    for hides in (
        [(["crash"], ["stall"]), (["stall"], ["slow"]), (["slow"], ["crash"])],
        [(["crash", "stall"], ["stall"])],
    ):
        with pytest.raises(ValueError, match="cycle"):
            config(hides)


def amtool(*arguments: str) -> str:
    """What it prints; it must succeed."""
    return printed(require_alertmanager("new") / "amtool", *arguments)
