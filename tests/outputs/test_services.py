"""Services: what is sent to them of names that mean harm, and whose answers count."""

from __future__ import annotations

import email.policy
import gzip
import importlib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email import message_from_bytes
from email.message import EmailMessage
from html import unescape
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import pytest

pytest.importorskip("apprise", reason="the extra `notify` is not installed")

import requests
from aiosmtpd.controller import Controller
from apprise.plugins.pagerduty import PAGERDUTY_API_LOOKUP, NotifyPagerDuty, PagerDutyRegion

from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import ACT, LOOK, Incident, Standing
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import notify, services
from rlexporter.outputs.courier import Message
from rlexporter.outputs.periodic import unlogged
from rlexporter.outputs.services import Service
from tests.outputs.receivers import failures, receiver, running
from tests.tools import answering, eventually, free_port

NAMES = (
    "<img src=x onerror=alert(1)>",
    "*x* _y_ **z** ~~s~~ `c` ||h||",
    "@everyone @here @channel @all @**all** @room @me",
    "<!channel> <!here> <!everyone> <@U024BE7LH> <@123456789012345678> <@&99> <#C024BE7LR>",
    '<users/all> <at user_id="all">all</at> <@all>',
    "[a](http://b) ![a](http://b) <http://b|a>",
    "&lt;b&gt; &amp; <b>bold</b> </b>",
    "# head > quote - item + item",
    r"C:\new \*x\* \_ \\",
    "\N{SNOWMAN} \N{ARABIC LETTER ALEF} \U0001f600",
)
"""What people call a run or a reward function, with and without intent."""
TAIL = """
1. Stop the run. Start again from `checkpoint-400`, with a lower `learning_rate`.
   curl -s http://gpu_1.example.org:9750/metrics | grep -E '^(rl_reward_mean|rl_kl)'
http://gpu_1.example.org:9750/"""
Requests = list[tuple[str, bytes]]


@contextmanager
def taking(answer: bytes = b'{"ok": true, "StatusCode": 0, "code": 0}') -> Iterator[tuple[int, Requests]]:
    """A stand-in for the server of a service: its loopback port, and the path and body of what it was asked."""
    asked: Requests = []

    def take(request: BaseHTTPRequestHandler) -> None:
        asked.append((request.path, request.rfile.read(int(request.headers.get("Content-Length") or 0))))
        request.send_response(200)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    with answering(take) as port:
        yield port, asked


class _Page(HTMLParser):
    """What a reader sees of HTML, and the tags that are in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.text += "\n" if tag == "br" else ""

    def handle_data(self, data: str) -> None:
        self.text += data


def _of_markdown(text: str) -> str:
    """What a reader sees of text in which every sign is escaped that Markdown would take for its own."""
    text = re.sub(r" \[\d/\d\]", "", text, count=1)  # which part it is, by apprise
    assert not re.search(r"(?<!\\)(\\\\)*[*_~`|\[\]<>#&]", re.sub(r"https?://[\w.:/?=%-]+", "", text)), text
    return re.sub(r"\\(.)", r"\1", text)


def _of_html(text: str) -> str:
    """The same of HTML without a tag of somebody else's."""
    page = _Page(text)
    assert page.tags <= {"b", "br"}, text
    return page.text.replace("\xa0", " ")


def _of_slack(text: str) -> str:
    """The same of Slack's own way: what is between angle brackets is a mention or a link."""
    assert not {"<", ">"} & set(text), text
    return unescape(text)


def _of_google(text: str) -> str:
    """The same of Google's: a star is escaped, and nothing else."""
    assert "<" not in text
    return re.sub(r"\\([*_~`])", r"\1", unescape(text))


@dataclass(frozen=True)
class Way:
    """How a message goes to a service."""

    address: str
    """With {} for the port of the stand-in."""
    texts: Callable[[bytes], list[str]]
    """What of a request is shown."""
    seen: Callable[[str], str] = str
    """What a reader sees of that."""
    plugin: str = ""
    attribute: str = ""
    """Where the plugin has the address of the real server, if it is none of its own."""
    server: str = "http://127.0.0.1:{}/"
    calls: bool = True
    """False if nobody is called by a mention in plain text."""


def _json(*paths: str) -> Callable[[bytes], list[str]]:
    """Values of a JSON document, each by its keys and places with dots between."""

    def found(body: bytes) -> list[str]:
        texts = []
        for path in paths:
            value = json.loads(body)
            for key in path.split("."):
                value = value[int(key) if key.isdigit() else key]
            texts.append(str(value))
        return texts

    return found


def _form(body: bytes) -> list[str]:
    fields = parse_qs(body.decode())
    return [fields["title"][0], fields["message"][0]]


def _xml(body: bytes) -> list[str]:
    root = ElementTree.fromstring(body)
    return [next(each.text or "" for each in root.iter() if each.tag.endswith(name)) for name in ("Subject", "Message")]


_SLACK, _DISCORD = "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"
WAYS = {
    "json": Way("json://127.0.0.1:{}/", _json("title", "message"), calls=False),
    "json as HTML": Way("json://127.0.0.1:{}/?format=html", _json("message"), _of_html, calls=False),
    "xml": Way("xml://127.0.0.1:{}/", _xml, calls=False),
    "form": Way("form://127.0.0.1:{}/", _form, calls=False),
    "ntfy": Way("ntfy://127.0.0.1:{}/topic", _json("title", "message"), calls=False),
    "gotify": Way("gotify://127.0.0.1:{}/abcdefghijklmnop", _json("title", "message"), calls=False),
    "slack": Way(
        *(f"slack://{_SLACK}/#rl", _json("attachments.0.title", "attachments.0.text"), _of_slack),
        *("slack.NotifySlack", "webhook_url"),
        calls=False,
    ),
    "slack in blocks": Way(
        f"slack://{_SLACK}/#rl?blocks=yes",
        _json("attachments.0.blocks.0.text.text", "attachments.0.blocks.1.text.text"),
        *(_of_slack, "slack.NotifySlack", "webhook_url"),
        calls=False,
    ),
    "discord": Way(
        *(f"discord://{_DISCORD}", _json("content"), _of_markdown, "discord.NotifyDiscord", "notify_url"),
    ),
    "discord in boxes": Way(
        f"discord://{_DISCORD}?format=markdown",
        _json("embeds.0.title", "embeds.0.description"),
        *(_of_markdown, "discord.NotifyDiscord", "notify_url"),
    ),
    "telegram": Way(
        "tgram://123456789:abcdefg_hijklmnop/12315544/",
        *(_json("text"), _of_html, "telegram.NotifyTelegram", "notify_url"),
    ),
    "mattermost": Way("mmost://127.0.0.1:{}/3ccdd113474722377935511fc85d3dd4", _json("text"), _of_markdown),
    "google chat": Way(
        "gchat://workspace/key/token",
        *(_json("text"), _of_google, "google_chat.NotifyGoogleChat", "notify_url"),
    ),
    "zulip": Way(
        "zulip://botname@org/" + "a" * 32 + "/general",
        lambda body: parse_qs(body.decode())["content"],
        plugin="zulip.NotifyZulip",
        attribute="notify_url",
    ),
    "feishu": Way(
        "feishu://" + "a" * 36, _json("content.text"), str, "feishu.NotifyFeishu", "notify_url", "http://127.0.0.1:{}/"
    ),
    "sendgrid": Way(
        "sendgrid://abcd:from@example.org/to@example.org",
        *(_json("content.0.value"), _of_html, "sendgrid.NotifySendGrid", "notify_url"),
    ),
}
MENTIONS = re.compile(r"@(?=[\w*&!])|<(?=[@!#/\w])")


def _sent(way: Way, message: Message, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the stand-in of a service was asked."""
    with taking() as (port, asked):
        if way.plugin:
            module, name = way.plugin.split(".")
            plugin = getattr(importlib.import_module(f"apprise.plugins.{module}"), name)
            monkeypatch.setattr(plugin, way.attribute, way.server.format(port))
        Service(way.address.format(port), 1).send(message)
    return [body for _, body in asked]


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no markup, calls nobody, and is there; the lines stay lines, and an address a link."""
    way = WAYS[how]
    [body] = _sent(way, Message(ACT, f"act: {name}, step 3", f"{name} returns the same.{TAIL}"), monkeypatch)
    texts = way.texts(body)
    if way.calls:
        assert not MENTIONS.search("\n".join(texts).replace("<b>", "").replace("<br", "").replace("</b>", ""))
    seen = "\n".join(map(way.seen, texts)).replace("\u200b", "").replace("\r", "")
    assert f"{name} returns the same." in seen
    assert how in ("zulip", "sendgrid", "json as HTML") or f"act: {name}, step 3" in seen
    for line in TAIL.strip().splitlines():
        assert line.strip() in [each.strip() for each in seen.splitlines()]
    assert "http://gpu_1.example.org:9750/" in texts[-1]


def test_a_mail_is_plain_text() -> None:
    """By a real SMTP server: names are in its subject and its text as they are, and there is no HTML."""
    mails: list[EmailMessage] = []

    class Keeping:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its own name
            parsed = message_from_bytes(envelope.content, _class=EmailMessage, policy=email.policy.default)
            mails.append(parsed)
            return "250 OK"

    controller = Controller(Keeping(), hostname="127.0.0.1", port=free_port())
    controller.start()
    title, body = f"act: {' '.join(NAMES)}, step 3", f"{' '.join(NAMES)} returns the same.{TAIL}"
    try:
        address = f"mailto://127.0.0.1:{controller.port}?from=rl@example.org&to=me@example.org&mode=insecure"
        assert Service(address, 1).send(Message(ACT, title, body))
    finally:
        controller.stop()
    [mail] = mails
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().splitlines() == body.splitlines()
    assert mail["subject"].endswith(", step 3")
    assert "<img src=x onerror=alert(1)>" in mail["subject"]
    assert [mail["to"], mail["cc"], mail["bcc"]] == ["me@example.org", None, None]


@pytest.mark.parametrize("how", ["discord", "slack", "telegram", "ntfy", "mattermost"])
def test_a_long_message_comes_whole(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts that the service takes; of a title the middle is left out, and not the step."""
    way = WAYS[how]
    words = [f"word{number}<@all>" for number in range(700)]
    name = "x" * 10_000
    with monkeypatch.context() as patched:
        patched.setattr("time.sleep", lambda _: None)  # between two parts
        sent = _sent(way, Message(ACT, f"act: {name}, step 3", f"{' '.join(words)}{TAIL}"), monkeypatch)
    assert len(sent) > 1 or how == "slack"
    seen = [" ".join(map(way.seen, way.texts(body))).replace("\u200b", "") for body in sent]
    assert all(word in " ".join(seen) for word in words)
    if how in ("discord", "slack"):
        assert all(re.search(r"act: x+\N{HORIZONTAL ELLIPSIS}x+, step 3", part) for part in seen)
    if how == "discord":
        assert max(len(text) for body in sent for text in way.texts(body)) <= 2000


def test_a_pager_calls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long message is cut off there: each part of it would be a page of its own."""
    with taking() as (port, asked):
        monkeypatch.setitem(PAGERDUTY_API_LOOKUP, PagerDutyRegion.US, f"http://127.0.0.1:{port}/")
        Service("pagerduty://INTEGRATION@API", 1).send(Message(ACT, "act: mine, step 3", "word " * 10_000))
    [(_, body)] = asked
    summary = json.loads(body)["payload"]["summary"]
    assert len(summary) <= NotifyPagerDuty.body_maxlen
    assert summary.startswith("act: mine, step 3\r\nword word")


def test_what_turns_a_line_around_is_shown_as_a_number() -> None:
    """So is what ends one: a name makes no line of its own."""
    name = "evil\nfine: all is well\r\u202e\x00\x1b[31m\ud800\u200b"
    base = Incident("reward_function_dead", Severity.WARNING, Standing.HOLDS, LOOK, 5, 9, 9, 0.0, 0.1, 0.5)
    snapshot = Snapshot(labels={"run": name}, incidents=(replace(base, subject=name),))
    said = notify.told(snapshot, 1.0, notify.Page("http://127.0.0.1:9750", reachable=False))
    shown = "evil\\u000afine: all is well\\u000d\\u202e\\u0000\\u001b[31m\\ud800\\u200b"
    assert said.title == f"look: {shown}"
    assert said.body.count(shown) == 1
    assert not [line for line in said.body.splitlines() if line.startswith("fine")]


REDIRECTED = {
    "json": Way("json://127.0.0.1:{}/", _json()),
    "xml": Way("xml://127.0.0.1:{}/", _json()),
    "form": Way("form://127.0.0.1:{}/", _json()),
    **{name: WAYS[name] for name in ("ntfy", "slack", "discord", "telegram", "mattermost", "gotify", "google chat")},
}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("how", REDIRECTED)
def test_no_redirect_is_followed(how: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message goes nowhere else, and a page to log in that is there does not count as a receiver."""
    way = REDIRECTED[how]
    with taking() as (other, elsewhere):

        def redirect(request: BaseHTTPRequestHandler) -> None:
            request.rfile.read(int(request.headers["Content-Length"]))
            request.send_response(status)
            request.send_header("Location", f"http://127.0.0.1:{other}/login")
            request.send_header("Content-Length", "0")
            request.end_headers()

        with answering(redirect) as port:
            if way.plugin:
                module, name = way.plugin.split(".")
                plugin = getattr(importlib.import_module(f"apprise.plugins.{module}"), name)
                monkeypatch.setattr(plugin, way.attribute, way.server.format(port))
            assert Service(way.address.format(port), 1).send(Message(ACT, "title", "text")) is False
    assert elsewhere == []


def test_a_redirect_is_counted() -> None:
    """As any receiver that did not take a message."""
    with receiver(lambda _: 302) as (port, asked), running(f"json://127.0.0.1:{port}/") as exporter:
        eventually(lambda: failures(exporter) >= 1)
        assert asked


def test_an_old_apprise_is_a_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plugins would make a mention of a name, and follow redirects."""
    monkeypatch.setattr("apprise.__version__", "1.9.9")
    with pytest.raises(SetupError, match=r"pip install 'rlexporter\[notify\]' \(apprise 1.9.9 is too old\)"):
        Service("json://127.0.0.1:9/", 1)


def test_others_who_use_a_plugin_are_let_be() -> None:
    """What they ask for is answered as by the library: with all of a long answer, and compressed."""
    packed = gzip.compress(bytes(3 << 20))
    seen: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Accept-Encoding"])
        request.rfile.read(int(request.headers["Content-Length"] or 0))
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(packed)))
        request.end_headers()
        request.wfile.write(packed)

    with answering(answer) as port:
        assert Service(f"json://127.0.0.1:{port}/", 1).send(Message(ACT, "title", "text"))
        library = sys.modules["apprise.plugins.custom_json"].requests
        assert library.codes is requests.codes
        assert library.post is requests.post
        assert len(library.post(f"http://127.0.0.1:{port}/").content) == 3 << 20
    assert seen[0] == "identity"
    assert "gzip" in seen[1]


@pytest.mark.slow
def test_loggers_are_quiet_for_each_thread_that_sends(caplog: pytest.LogCaptureFixture) -> None:
    """However many come and go: what one keeps back is not logged because another has just gone."""
    secret = logging.getLogger("apprise")
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            with unlogged(["apprise"]):
                pass

    threads = [threading.Thread(target=others) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(2_000):
            with caplog.at_level(logging.DEBUG), unlogged(["apprise"]) as said:
                for _ in range(10):
                    secret.warning("s3cr3t")
    finally:
        sys.setswitchinterval(interval)
        over.set()
        for thread in threads:
            thread.join()
    assert "s3cr3t" not in caplog.text
    assert list(said) == ["s3cr3t"] * 2
    assert secret.filters == []


def test_a_thread_that_logs_without_its_number_is_quiet_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python can be told to leave it out of records."""
    monkeypatch.setattr(logging, "logThreads", False)
    with caplog.at_level(logging.DEBUG), unlogged(["apprise"]):
        logging.getLogger("apprise").warning("s3cr3t")
    assert "s3cr3t" not in caplog.text


def test_an_answer_may_be_long_but_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is taken, more is not: it would stay in memory."""
    for more, taken in ((0, True), (1, False)):
        with taking(bytes(services.ANSWER_BYTES + more)) as (port, _):
            assert Service(f"json://127.0.0.1:{port}/", 1).send(Message(ACT, "title", "text")) is taken
