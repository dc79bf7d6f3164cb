"""Messages: that they come, where they go, what is in them, and what is not."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from math import nan
from typing import Any

import pytest

pytest.importorskip("apprise", reason="the extra `notify` is not installed")

from aiosmtpd.controller import Controller
from apprise.plugins.discord import NotifyDiscord
from apprise.plugins.slack import NotifySlack

from rlexporter import Exporter
from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.catalog.metrics import CATALOG
from rlexporter.commands import main
from rlexporter.conditions.from_catalog import watch
from rlexporter.config.settings import Settings
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import ACT, LOOK, Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.outputs import notify
from rlexporter.outputs.notify import Message, Notifier, Page
from rlexporter.store.store import Store
from tests.endpoint.wire import ask
from tests.tools import answering, eventually, free_port

SECRET = "s3cr3t"
HEALTHY = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
BAD = {**HEALTHY, "loss": nan}
PAGE = Page("http://127.0.0.1:9750", reachable=False)
Asked = tuple[str, Any]


@contextmanager
def receiver(status: Callable[[int], int] = lambda _: 200, wait: float = 0.0) -> Iterator[tuple[int, list[Asked]]]:
    """A loopback port, and what was posted there; ``status``: of the answer to the first, second ... request."""
    asked: list[Asked] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        asked.append((request.path, json.loads(body)))
        time.sleep(wait)
        request.send_response(status(len(asked)))
        request.end_headers()

    with answering(answer) as port:
        yield port, asked


@contextmanager
def running(address: str, **settings: Any) -> Iterator[Exporter]:
    """A run with ten healthy steps, and one bad one."""
    with_messages = Exporter(run="mine", algorithm="grpo", port=0, linger=0, notify=address, **settings)
    exporter = with_messages.start()
    try:
        for step in range(1, 11):
            exporter.log(HEALTHY, step=step)
        exporter.log(BAD, step=11)
        yield exporter
    finally:
        exporter.close()


def failures(exporter: Exporter) -> float:
    """How many messages were not taken."""
    return exporter.snapshot.value("rlexporter_errors_total", where="notify") or 0.0


def test_a_nan_is_told_at_once_as_on_the_page() -> None:
    """Once, with the run, the step, a sentence, numbered steps; the end has a message of its own."""
    with receiver() as (port, asked), running(f"json://127.0.0.1:{port}/{SECRET}") as exporter:
        eventually(lambda: asked)
        path, said = asked[0]
        assert path == f"/{SECRET}"
        assert said["title"] == "act: mine, step 11"
        assert said["type"] == "failure"
        lines = said["message"].splitlines()
        assert lines[0] == notify.told(exporter.snapshot, time.time(), PAGE).body.splitlines()[0]
        assert "step 11" in lines[0]
        assert [line[:3] for line in lines if line[0].isdigit()] == ["1. ", "2. ", "3. "]
        assert lines[-1].startswith("3. "), "a page on this machine alone is no link"
        assert f"curl -s http://127.0.0.1:{exporter.port}/metrics" in said["message"]
        for step in range(12, 20):
            exporter.log(BAD, step=step)
        exporter.end()
        eventually(lambda: len(asked) == 2)
        assert asked[1][1]["title"] == "act: mine, step 19"
        assert "The run has finished" in asked[1][1]["message"]
    assert len(asked) == 2
    assert failures(exporter) == 0


def test_a_page_that_others_can_reach_is_linked() -> None:
    """By its own address, or the one that is advertised; the command of a step has it too."""
    with receiver() as (port, asked), running(f"json://127.0.0.1:{port}/", advertise="gpu-1:9750"):
        eventually(lambda: asked)
        lines = asked[0][1]["message"].splitlines()
        assert lines[-1] == "http://gpu-1:9750/"
        assert any(line.startswith("   curl -s http://gpu-1:9750/metrics | grep ") for line in lines)


def test_the_form_of_slack_and_of_discord(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their addresses are fixed in apprise: a stand-in takes their place, and what is posted is what they ask for."""
    with receiver() as (port, asked):
        monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://127.0.0.1:{port}/discord")
        monkeypatch.setattr(NotifySlack, "webhook_url", f"http://127.0.0.1:{port}/slack")
        addresses = f"discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js slack://T1JJ3T3L2/A1BRTD4JD/{'T' * 24}/#rl"
        with running(addresses):
            eventually(lambda: len(asked) == 2)
    found = {path.split("/")[1]: json.dumps(body) for path, body in asked}
    assert set(found) == {"discord", "slack"}
    for body in found.values():
        assert "act: mine, step 11" in body
        assert "2. " in body


def test_the_form_of_ntfy() -> None:
    """A topic, a title and a text."""
    with receiver() as (port, asked), running(f"ntfy://127.0.0.1:{port}/rl-runs"):
        eventually(lambda: asked)
    [(_, body), *_] = asked
    assert (body["topic"], body["title"]) == ("rl-runs", "act: mine, step 11")


def test_a_mail() -> None:
    """By a real SMTP server."""
    mails: list[str] = []

    class Keeping:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its own name
            mails.append(envelope.content.decode())
            return "250 OK"

    controller = Controller(Keeping(), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        address = f"mailto://127.0.0.1:{controller.port}?from=rl@example.org&to=me@example.org&mode=insecure"
        with running(address) as exporter:
            eventually(lambda: mails)
    finally:
        controller.stop()
    assert "act: mine, step 11" in mails[0]
    assert failures(exporter) == 0


@pytest.mark.parametrize("how", ["away", "429", "500", "slow", "no TLS"])
def test_a_receiver_that_does_not_take_it(how: str) -> None:
    """Training is not held up, what failed is counted and tried again, and the log has no secret."""
    with receiver(
        lambda number: 200 if number > 1 or how == "slow" else int(how or 0), 5.0 if how == "slow" else 0
    ) as (
        port,
        asked,
    ):
        scheme = "jsons" if how == "no TLS" else "json"
        port = free_port() if how == "away" else port
        with running(f"{scheme}://user:{SECRET}@127.0.0.1:{port}/{SECRET}?rto=1&cto=1&verify=yes") as exporter:
            start = time.monotonic()
            for step in range(12, 112):
                exporter.log(HEALTHY, step=step)
            assert time.monotonic() - start < 60
            eventually(lambda: failures(exporter) >= 1)
            if how in ("429", "500"):
                eventually(lambda: len(asked) == 2)
                assert asked[0][1] == asked[1][1]


def test_what_failed_is_given_up() -> None:
    """After four tries."""
    clock = _Clock()
    store, sent = _store(clock), _Taking(False)
    ticker = Notifier([sent], lambda: store.snapshot, PAGE, sent.failed.append, False, clock)
    store.record(BAD, 11)
    for _ in range(100):
        clock.now += 1
        ticker.look()
    assert len(sent.messages) == 4
    assert [str(error) for error in sent.failed] == [
        *["fake did not take a message; it is tried again"] * 3,
        "fake did not take a message; it is given up",
    ]


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class _Taking:
    """A receiver for a clock of our own: real ones take hours to be told six times."""

    kind = "fake"

    def __init__(self, takes: bool = True) -> None:
        self.messages: list[Message] = []
        self.failed: list[Exception] = []
        self._takes = takes

    def send(self, message: Message) -> bool:
        self.messages.append(message)
        return self._takes


def _store(clock: _Clock) -> Store:
    store = Store(CATALOG, clock=clock, watch=watch())
    store.begin(RunFacts(algorithm="grpo", step=0), {"run": "mine", "rank": "0"})
    store.enter(RunState.RUNNING)
    for step in range(1, 11):
        store.record(HEALTHY, step)
    return store


WRONG = ("loss", "grad_norm", "reward", "kl", "entropy", "policy/approxkl_avg", "completions/mean_length", "step_time")


def test_a_storm_is_one_message_and_an_hour_has_six_at_most() -> None:
    """What goes wrong within a minute is told together; the last message of an hour is kept for the end."""
    clock, sent = _Clock(), _Taking()
    store = _store(clock)
    severities = (Severity.CRITICAL, Severity.WARNING)
    ticker = Notifier([sent], lambda: store.snapshot, PAGE, sent.failed.append, True, clock)
    for place in range(len(WRONG)):
        clock.now += 1
        store.record({**HEALTHY, **dict.fromkeys(WRONG[: place + 1], nan)}, 11 + place)
        ticker.look()
    assert len(sent.messages) == 1
    clock.now += notify.GATHER_SECONDS
    ticker.look()
    assert len(sent.messages) == 2
    assert sent.messages[1].body.startswith("A reward is NaN or infinite. It began in step 13.")
    assert len(list(notify.news(store.snapshot, clock.now, severities))) == 2, "what followed from it is no news"
    also = notify.told(store.snapshot, clock.now, PAGE, ["nonfinite_loss", "nonfinite_reward"]).body.splitlines()[1]
    assert also == "Also: The loss is NaN or infinite."
    for attempt in range(10):  # each attempt is a run of its own, and its NaN is new
        clock.now += 90
        store.begin(RunFacts(algorithm="grpo", step=0), {"run": "mine", "rank": "0"})
        store.change(lambda builder, at=clock.now: builder.set("rl_run_start_timestamp_seconds", at))  # type: ignore[misc]
        store.record(HEALTHY, 1)
        store.record({**HEALTHY, "loss": nan}, 2 + attempt)
        ticker.look()
    assert len(sent.messages) == notify.MOST - 1
    store.enter(RunState.FAILED, "RuntimeError")
    ticker.look()
    assert len(sent.messages) == notify.MOST
    assert "The run has failed with RuntimeError" in sent.messages[-1].body
    assert sent.failed == []


def test_a_run_that_is_stuck_is_told_once() -> None:
    """And a second time only if it went on in between."""
    clock, sent = _Clock(), _Taking()
    store = _store(clock)
    ticker = Notifier([sent], lambda: store.snapshot, PAGE, sent.failed.append, False, clock)
    for _ in range(2000):
        clock.now += 1
        ticker.look()
    assert [message.title for message in sent.messages] == ["act: mine, step 10"]
    assert "The run is stuck" in sent.messages[0].body
    assert "{" not in sent.messages[0].body


def test_warnings_are_for_those_who_ask() -> None:
    """By default only what is critical is worth a message."""
    for asked, expected in ((False, 0), (True, 1)):
        clock, sent = _Clock(), _Taking()
        store = _store(clock)

        def now(store: Store = store) -> Snapshot:
            return store.snapshot

        ticker = Notifier([sent], now, PAGE, sent.failed.append, asked, clock)
        store.record({**HEALTHY, "learning_rate": 1e-5}, 11)
        store.record({**HEALTHY, "learning_rate": 1e-5}, 12)
        store.record({**HEALTHY, "learning_rate": 1e-3}, 13)
        ticker.look()
        assert {each.severity for each in store.snapshot.incidents} == {Severity.WARNING}
        assert len(sent.messages) == expected


@pytest.mark.parametrize(
    ("later", "expected"), [(30, ["reward_function_dead"]), (90, ["reward_drop", "reward_function_dead"])]
)
def test_what_may_be_explained_waits_a_minute_for_its_cause(later: float, expected: list[str]) -> None:
    """The cause is told alone if it is certain by then, else after; even if it is only a warning itself."""
    clock, sent = _Clock(), _Taking()
    store = _store(clock)
    told: list[Incident] = []
    ticker = Notifier(
        [sent], lambda: replace(store.snapshot, incidents=tuple(told)), PAGE, sent.failed.append, False, clock
    )
    base = Incident("reward_drop", Severity.CRITICAL, Standing.HOLDS, ACT, 5, 9, 9, clock.now, 0.1, 0.5)
    cause = replace(base, condition="reward_function_dead", severity=Severity.WARNING, word=LOOK)
    begun = clock.now
    for after in range(1, 300, 2):
        clock.now = begun + after
        told[:] = [base] if after < later else [cause, replace(base, cause="reward_function_dead")]
        if after > 2 * later:
            told[:] = [cause]
        store.record(HEALTHY, 10 + after)
        ticker.look()
    bodies = [each.body.split(".")[0] for each in sent.messages]
    assert bodies == [CONDITION_NAMED[name].summary[:-1] for name in expected]


CHILD = """
import os, signal, sys, time
from rlexporter import Exporter
exporter = Exporter(run="mine", algorithm="grpo", port=0, linger=0, notify=sys.argv[1]).start()
healthy = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
exporter.run.begin(__import__("rlexporter.model.step", fromlist=["RunFacts"]).RunFacts(algorithm="grpo", step=0))
for step in range(1, 11):
    exporter.log(healthy, step=step)
exporter.log({**healthy, "loss": float("nan")}, step=11)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
"""


def test_who_is_killed_right_after_it_has_told() -> None:
    """SIGTERM in the moment of the NaN: the message is out before the process is gone."""
    with receiver() as (port, asked):
        command = [sys.executable, "-c", CHILD, f"json://127.0.0.1:{port}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == -signal.SIGTERM, done.stderr
        assert any("step 11" in body["title"] and body["type"] == "failure" for _, body in asked)


def test_no_secret_is_told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in a log, an error, a series, the page nor what Python shows of the settings."""
    address = f"json://user:{SECRET}@127.0.0.1:{free_port()}/{SECRET}?cto=1"
    with caplog.at_level(logging.DEBUG), running(address) as exporter:
        eventually(lambda: failures(exporter) >= 1)
        for path in ("/metrics", "/api/status", "/"):
            assert SECRET not in ask(exporter, "GET", path).body.decode()
        assert SECRET not in repr(exporter.run.settings)
    with pytest.raises(SetupError, match="address 2 is none that apprise can use") as refused:
        Exporter(port=0, notify=["json://localhost", f"nothing://{SECRET}"]).start()
    assert SECRET not in str(refused.value)
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capsys.readouterr())
    assert not [each for each in threading.enumerate() if each.name == "rlexporter-notify"]


def test_one_can_be_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`rlexporter notify --test` says for each address if it was taken."""
    with receiver() as (port, asked):
        monkeypatch.setenv(
            "RLEXPORTER_NOTIFY", f"json://127.0.0.1:{port}/a  json://127.0.0.1:{free_port()}/{SECRET}?cto=1"
        )
        assert main.main(["notify", "--test"]) == 1
        said = capsys.readouterr().out
        assert said.splitlines()[0] == "json: sent"
        assert said.splitlines()[1].startswith("json: not taken")
        assert SECRET not in said
        assert asked[0][1]["title"] == "rlexporter: a test"
    monkeypatch.delenv("RLEXPORTER_NOTIFY")
    assert main.main(["notify", "--test"]) == 2
    assert "RLEXPORTER_NOTIFY is not set" in capsys.readouterr().err


def test_addresses_are_given_with_blanks_or_as_a_list() -> None:
    """An address can hold a comma."""
    assert Settings.load({}, {"RLEXPORTER_NOTIFY": " a://x,y \n b://z "}).notify == ("a://x,y", "b://z")
    assert Settings.load({"notify": ["a://x"]}, {}).notify == ("a://x",)
