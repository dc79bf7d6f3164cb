"""Messages: that they come, where they go, what is in them, and what is not."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apprise", reason="the extra `notify` is not installed")

from aiosmtpd.controller import Controller
from apprise.plugins.discord import NotifyDiscord
from apprise.plugins.slack import NotifySlack

from rlexporter import Discovery, Exporter
from rlexporter.catalog.metrics import CATALOG
from rlexporter.commands import main
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.conditions.watch import watch
from rlexporter.config.settings import Settings
from rlexporter.feed.feed import Feed
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError
from rlexporter.model.incident import ACT, FINE, LOOK, Incident, Standing
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.outputs import notify
from rlexporter.outputs.courier import Message
from rlexporter.outputs.notify import Notifier, Page
from tests.endpoint.wire import ask
from tests.outputs.receivers import BAD, HEALTHY, failures, receiver, running
from tests.tools import eventually, free_port

SECRET = "s3cr3t"
PAGE = Page("http://127.0.0.1:9750", reachable=False)


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
    with receiver() as (port, asked), running(f"json://127.0.0.1:{port}/", discovery=Discovery(advertise="gpu-1:9750")):
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


@pytest.mark.slow
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


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class _Taking:
    """A receiver for a clock of our own: real ones take hours to be told six times."""

    kind = "fake"

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failed: list[Exception] = []

    def send(self, message: Message) -> bool:
        self.messages.append(message)
        return True


def _look(ticker: Notifier) -> None:
    """Look once, and bring what there is on this thread."""
    ticker.look()
    for courier in ticker.couriers:
        courier.deliver()


def _feed(clock: _Clock) -> Feed:
    feed = Feed(CATALOG, clock=clock, watch=watch())
    feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "mine", "rank": "0"})
    feed.enter(RunState.RUNNING)
    for step in range(1, 11):
        feed.record(HEALTHY, step)
    return feed


WRONG = ("loss", "grad_norm", "reward", "kl", "entropy", "policy/approxkl_avg", "completions/mean_length", "step_time")


def test_a_storm_is_one_message_and_an_hour_has_six_at_most() -> None:
    """What goes wrong within a minute is told together; the last message of an hour is kept for the end."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    severities = (Severity.CRITICAL, Severity.WARNING)
    ticker = Notifier([sent], lambda: feed.snapshot, PAGE, sent.failed.append, True, clock)
    for place in range(len(WRONG)):
        feed.record({**HEALTHY, **dict.fromkeys(WRONG[: place + 1], nan)}, 11 + place)
        _look(ticker)
        clock.now += notify.END_SECONDS
        _look(ticker)
    assert len(sent.messages) == 1
    clock.now += notify.GATHER_SECONDS
    _look(ticker)
    assert len(sent.messages) == 2
    assert sent.messages[1].body.startswith("A reward is NaN or infinite. It began in step 13.")
    assert len(list(notify.news(feed.snapshot, clock.now, severities))) == 2, "what followed from it is no news"
    also = notify.told(feed.snapshot, clock.now, PAGE, ["nonfinite", "nonfinite_reward"]).body.splitlines()[1]
    assert also == "Also: rl_loss is NaN or infinite."
    for attempt in range(10):  # each attempt is a run of its own, and its NaN is new
        clock.now += 90
        feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "mine", "rank": "0"})
        feed.change(lambda builder, at=clock.now: builder.set("rl_run_start_timestamp_seconds", at))  # type: ignore[misc]
        feed.record(HEALTHY, 1)
        feed.record({**HEALTHY, "loss": nan}, 2 + attempt)
        clock.now += notify.END_SECONDS
        _look(ticker)
    assert len(sent.messages) == notify.MOST - 1
    feed.enter(RunState.FAILED, "RuntimeError")
    _look(ticker)
    assert len(sent.messages) == notify.MOST
    assert "The run has failed with RuntimeError" in sent.messages[-1].body
    assert sent.failed == []


def test_a_run_that_is_stuck_is_told_once() -> None:
    """And a second time only if it went on in between."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    ticker = Notifier([sent], lambda: feed.snapshot, PAGE, sent.failed.append, False, clock)
    for _ in range(2000):
        clock.now += 1
        _look(ticker)
    assert [message.title for message in sent.messages] == ["act: mine, step 10"]
    assert "The run is stuck" in sent.messages[0].body
    assert "{" not in sent.messages[0].body


def test_warnings_are_for_those_who_ask() -> None:
    """By default only what is critical is worth a message."""
    for asked, expected in ((False, 0), (True, 1)):
        clock, sent = _Clock(), _Taking()
        feed = _feed(clock)

        def now(feed: Feed = feed) -> Snapshot:
            return feed.snapshot

        ticker = Notifier([sent], now, PAGE, sent.failed.append, asked, clock)
        feed.record({**HEALTHY, "learning_rate": 1e-5}, 11)
        feed.record({**HEALTHY, "learning_rate": 1e-5}, 12)
        feed.record({**HEALTHY, "learning_rate": 1e-3}, 13)
        clock.now += notify.END_SECONDS
        _look(ticker)
        assert {each.severity for each in feed.snapshot.incidents} == {Severity.WARNING}
        assert len(sent.messages) == expected


@pytest.mark.parametrize(
    ("later", "expected"), [(30, ["reward_function_dead"]), (90, ["reward_drop", "reward_function_dead"])]
)
def test_what_may_be_explained_waits_a_minute_for_its_cause(later: float, expected: list[str]) -> None:
    """The cause is told alone if it is certain by then, else after; even if it is only a warning itself."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    told: list[Incident] = []
    ticker = Notifier(
        [sent], lambda: replace(feed.snapshot, incidents=tuple(told)), PAGE, sent.failed.append, False, clock
    )
    base = Incident("reward_drop", Severity.CRITICAL, Standing.HOLDS, ACT, 5, 9, 9, clock.now, 0.1, 0.5)
    cause = replace(base, condition="reward_function_dead", severity=Severity.WARNING, word=LOOK)
    begun = clock.now
    for after in range(1, 300, 2):
        clock.now = begun + after
        told[:] = [base] if after < later else [cause, replace(base, cause="reward_function_dead")]
        if after > 2 * later:
            told[:] = [cause]
        feed.record(HEALTHY, 10 + after)
        _look(ticker)
    bodies = [each.body.split(".")[0] for each in sent.messages]
    assert bodies == [CONDITION_NAMED[name].summary[:-1] for name in expected]


def test_one_fault_at_the_end_is_one_message() -> None:
    """An incident waits a moment for the end that follows from it; without one it is out within two seconds."""
    for follows in (True, False):
        clock, sent = _Clock(), _Taking()
        feed = _feed(clock)
        ticker = Notifier([sent], lambda feed=feed: feed.snapshot, PAGE, sent.failed.append, False, clock)  # type: ignore[misc]
        feed.record(BAD, 11)
        _look(ticker)
        assert sent.messages == []
        clock.now += notify.END_SECONDS - 0.1
        assert ticker.look() == pytest.approx(0.1)
        if follows:
            feed.enter(RunState.FAILED, "RuntimeError")
        else:
            clock.now += 0.2
        _look(ticker)
        [message] = sent.messages
        assert "rl_loss is NaN or infinite. It began in step 11." in message.body
        assert ("The run has failed with RuntimeError" in message.body) == follows
        assert not message.last, "a notebook shows it: it says more than the end"
        clock.now += 3600
        _look(ticker)
        assert len(sent.messages) == 1 + (not follows), "a run that goes on without a step is stuck"
    assert notify.END_SECONDS < 2.0


def test_an_incident_that_waits_is_told_when_the_exporter_is_closed() -> None:
    """Also of a run that has not ended, and in the minute after another message."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    ticker = Notifier([sent], lambda: feed.snapshot, PAGE, sent.failed.append, False, clock)
    feed.record(BAD, 11)
    clock.now += 2
    _look(ticker)
    feed.record({**BAD, "reward": nan}, 12)
    ticker.close()
    assert [message.body.split(".")[0] for message in sent.messages] == [
        "rl_loss is NaN or infinite",
        "A reward is NaN or infinite",
    ]


@pytest.mark.parametrize("explained", [False, True])
def test_what_is_over_while_it_waits_for_the_end_is_told(explained: bool) -> None:
    """Steps may be fast: it was critical. Only what another incident explains by then is no message of its own."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    told: list[Incident] = []
    ticker = Notifier(
        [sent], lambda: replace(feed.snapshot, incidents=tuple(told)), PAGE, sent.failed.append, False, clock
    )
    told[:] = [Incident("nonfinite", Severity.CRITICAL, Standing.HOLDS, ACT, 5, 9, 9, clock.now, 1.0, 0.0)]
    _look(ticker)
    told[:] = [replace(told[0], standing=Standing.OVER, word=FINE, over=12, cause="entropy_low" if explained else "")]
    for _ in range(30):
        clock.now += 0.1
        _look(ticker)
    assert ["is NaN or infinite" in message.body for message in sent.messages] == [True] * (not explained)


def test_a_clock_that_is_put_back_holds_nothing_up() -> None:
    """By hours, between an incident and the next look."""
    clock, sent = _Clock(), _Taking()
    feed = _feed(clock)
    ticker = Notifier([sent], lambda: feed.snapshot, PAGE, sent.failed.append, False, clock)
    feed.record(BAD, 11)
    clock.now -= 7200
    _look(ticker)
    assert len(sent.messages) == 1


def test_a_run_that_on_critical_stopped_is_one_message() -> None:
    """With the fault, and that it was stopped because of it."""
    with receiver() as (port, asked), running(f"json://127.0.0.1:{port}/", on_critical="stop") as exporter:
        assert exporter.should_stop
        exporter.end()
    [(_, said)] = asked
    assert "rl_loss is NaN or infinite" in said["message"]
    assert "The run was stopped by on_critical" in said["message"]


CRASH = """
import sys
from rlexporter import Exporter
exporter = Exporter(run="mine", algorithm="grpo", port=0, linger=0, notify=sys.argv[1]).start()
healthy = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
for step in range(1, 11):
    exporter.log(healthy, step=step)
exporter.log({**healthy, "loss": float("nan")}, step=11)
raise RuntimeError("probability tensor contains either inf, nan or element < 0")
"""


def test_a_process_that_crashes_after_a_nan_sends_one_message() -> None:
    """With the fault and the exception: nobody called `end` before the interpreter ended."""
    with receiver() as (port, asked):
        done = subprocess.run(
            [sys.executable, "-c", CRASH, f"json://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 1, done.stderr
    [(_, said)] = asked
    assert said["title"] == "act: mine, step 11"
    assert "rl_loss is NaN or infinite" in said["message"]
    assert "The run has failed with RuntimeError" in said["message"]


def test_one_who_ends_at_once_sends_nothing(tmp_path: Path) -> None:
    """`os._exit` asks nobody, as docs/howto/notify.md says."""
    with receiver() as (port, asked):
        script = CRASH.replace('raise RuntimeError("', 'import os; os._exit(3)  # ("')
        done = subprocess.run([sys.executable, "-c", script, f"json://127.0.0.1:{port}/"], timeout=600)
        assert done.returncode == 3
    assert asked == []


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
        assert SECRET not in repr(exporter._run.settings)
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
