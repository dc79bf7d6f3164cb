"""Couriers: that one receiver keeps a message from no other, that no try is endless, and what is done at the end."""

from __future__ import annotations

import os
import quopri
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("apprise", reason="the extra `notify` is not installed")

from rlexporter.commands import main
from rlexporter.model.incident import ACT
from rlexporter.outputs import courier, notify, services
from rlexporter.outputs.courier import Courier, Message
from rlexporter.outputs.services import Service
from tests.outputs.evil import EVIL, EVIL_MAIL, OK, Bytewise, drip, listening, request, taking_mail
from tests.outputs.receivers import failures, receiver, running
from tests.tools import eventually

pytestmark = pytest.mark.waits
MESSAGE = Message(ACT, "act: mine, step 11", "The loss is NaN or infinite.")


def ours() -> list[threading.Thread]:
    """The threads that send."""
    return [each for each in threading.enumerate() if each.name.startswith("rlexporter-notify")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Whatever a receiver does, no thread outlives the test."""
    yield
    eventually(lambda: not ours())


class _Fake:
    """A receiver that does what it is told, for what a real one would take minutes for."""

    kind = "fake"

    def __init__(self, takes: Callable[[Message], bool] = lambda _: True) -> None:
        self.messages: list[Message] = []
        self.failed: list[str] = []
        self._takes = takes

    def send(self, message: Message) -> bool:
        self.messages.append(message)
        return self._takes(message)

    def fail(self, error: Exception) -> None:
        self.failed.append(str(error))


@pytest.mark.slow
def test_who_does_not_answer_keeps_a_message_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither during the run nor at its end, however many there are and whatever they do."""
    monkeypatch.setattr(notify, "PATIENCE_SECONDS", 3.0)
    with ExitStack() as stack:
        evil = [stack.enter_context(listening(each)) for each in EVIL.values()]
        good = [stack.enter_context(receiver()) for _ in range(2)]
        ports = [good[0][0], *evil, good[1][0]]
        with running(" ".join(f"json://127.0.0.1:{port}/" for port in ports)) as exporter:
            eventually(lambda: all(len(asked) == 1 for _, asked in good))
            eventually(lambda: failures(exporter) >= 1)
            exporter.end()
            eventually(lambda: all(len(asked) == 2 for _, asked in good))
            start = time.monotonic()
        assert time.monotonic() - start < 60.0
        eventually(lambda: not ours(), 2.0)
        for _, asked in good:
            assert ["has finished" in body["message"] for _, body in asked] == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "how"), [*(("json", how) for how in EVIL), *(("mailto", how) for how in EVIL_MAIL)])
def test_a_try_has_an_end(scheme: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, also where each byte comes in time, and nothing of an endless answer stays in memory."""
    endless = how.startswith(("sends", "greets", "continues"))  # ended by how much comes, not by how long it takes
    monkeypatch.setattr(courier, "SEND_SECONDS", 600.0 if endless else 1.0)
    failed: list[Exception] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with listening((EVIL if scheme == "json" else EVIL_MAIL)[how]) as port:
        query = "from=a@example.org&to=b@example.org&mode=insecure" if scheme == "mailto" else "rto=600"
        one = Courier(Service(f"{scheme}://127.0.0.1:{port}/?{query}", 1), failed.append)
        one.start()
        one.bring(MESSAGE)
        _eventually_gone(one, lambda: bool(failed))
    assert str(failed[0]) == f"{scheme} did not take a message; it is tried again"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert most - before < 400_000, "in kilobytes"


def _eventually_gone(one: Courier, then: Callable[[], bool]) -> None:
    """Watch a courier until ``then``, and until it has ended."""

    def watched(check: Callable[[], bool]) -> bool:
        one.watch()
        return check()

    eventually(lambda: watched(then))
    one.stop(1.0)
    eventually(lambda: watched(lambda: one.gone))


def test_an_answer_cut_short_is_none() -> None:
    """What came of it may look good: the receiver is counted as one that did not answer."""
    failed: list[Exception] = []
    with listening(EVIL["drips a body of any length"]) as port:
        one = Courier(Service(f"json://127.0.0.1:{port}/", 1), failed.append)
        one._most = 0.5
        one.start()
        one.bring(MESSAGE)
        _eventually_gone(one, lambda: bool(failed))
    assert len(failed) == 2


def test_a_message_that_is_not_taken_is_tried_four_times() -> None:
    """At once, and 2, 8 and 32 seconds later; then it is given up."""
    now = 0.0
    fake, tries = _Fake(lambda _: False), []
    one = Courier(fake, fake.fail, lambda: now)
    one.bring(MESSAGE)
    for second in range(100):
        now, before = float(second), len(fake.messages)
        one.deliver()
        tries += [second] * (len(fake.messages) - before)
    assert tries == [0, 2, 10, 42]
    assert fake.failed == [
        *["fake did not take a message; it is tried again"] * 3,
        "fake did not take a message; it is given up",
    ]


def test_those_that_wait_are_few() -> None:
    """Of a receiver that hangs for hours the oldest messages are given up, each is counted, and the newest are kept."""
    fake = _Fake()
    one = Courier(fake, fake.fail)
    bodies = [str(number) for number in range(2 * courier.WAITING)]
    for body in bodies:
        one.bring(Message(ACT, "title", body))
    assert len(fake.failed) == courier.WAITING
    one.deliver()
    assert [each.body for each in fake.messages] == bodies[courier.WAITING :]


def test_the_last_message_comes_before_one_that_failed() -> None:
    """At the end, whatever is left is tried once more; nothing is tried for ever."""
    fake = _Fake(lambda message: message.body == "last")
    one = Courier(fake, fake.fail)
    one.bring(Message(ACT, "title", "first"))
    one.deliver()
    one.bring(Message(ACT, "title", "last"))
    one.close()
    assert [each.body for each in fake.messages] == ["first", "last", "first"]
    assert fake.failed[-1] == "fake did not take a message; it is given up"


def test_what_hangs_at_the_end_leaves_time_for_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that hung over one message, and would take the next, gets it."""
    monkeypatch.setattr(notify, "PATIENCE_SECONDS", 6.0)
    asked: list[bytes] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        asked.append(request(connection))
        if len(asked) > 1:
            connection.sendall(OK + b"\r\n")
        else:
            drip(connection, over, Bytewise(b"HTTP/1.1 200 "))

    with listening(behave) as port, running(f"json://127.0.0.1:{port}/") as exporter:
        eventually(lambda: asked)
        exporter.end()
    assert b"has finished" in asked[1]


@pytest.mark.slow
def test_no_thread_outlives_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the last try began late: it has what is left of the time, not as much as the first one."""
    monkeypatch.setattr(notify, "PATIENCE_SECONDS", 8.0)
    monkeypatch.setattr(notify, "_SPARE_SECONDS", 1.5)
    asked: list[bytes] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        asked.append(request(connection))
        if len(asked) == 1:
            over.wait()
        drip(connection, over, Bytewise(b"HTTP/1.1 200 "))

    with listening(behave) as port, running(f"json://127.0.0.1:{port}/?rto=2.5") as exporter:
        exporter.end()
        exporter.close()
        assert len(asked) == 2
        assert not ours()


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can end that call: closing returns in time all the same, says so, and the thread ends with the call.

    A function stands in for the one that asks name servers.
    """
    monkeypatch.setattr(notify, "PATIENCE_SECONDS", 2.0)
    answers, really = threading.Event(), socket.getaddrinfo

    def asks(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "no.example.org":
            answers.wait()
            raise socket.gaierror("no such host")
        return really(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", asks)
    with receiver() as (port, asked):
        start = time.monotonic()
        with running(f"json://no.example.org/ json://127.0.0.1:{port}/") as exporter:
            eventually(lambda: asked)
            exporter.end()
        assert time.monotonic() - start < 120.0
    assert len(asked) == 2
    assert len(ours()) == 2, "the courier that hangs, and who will see it end"
    assert failures(exporter) == 2
    answers.set()
    eventually(lambda: not ours())
    assert failures(exporter) == 2


CHILD = """
import os, signal, sys, time
from rlexporter import Exporter
exporter = Exporter(run="mine", algorithm="grpo", port=0, linger=0, notify=sys.argv[1]).start()
healthy = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.01}
exporter.run.begin(__import__("rlexporter.model.step", fromlist=["RunFacts"]).RunFacts(algorithm="grpo", step=0))
for step in range(1, 11):
    exporter.log(healthy, step=step)
exporter.log({**healthy, "loss": float("nan")}, step=11)
if sys.argv[2:]:
    sys.stdin.readline()
if "fails" in sys.argv:
    raise RuntimeError("probability tensor contains nan")
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
"""


def _child(addresses: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, addresses, *words]
    environ = {**os.environ, **environment}
    return subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_sigterm_leaves_time_for_all(tmp_path: Any) -> None:
    """Two that hang, and one that does not: it has the message, with the fault and the end."""
    hangs = EVIL["hangs"]
    with listening(hangs) as one, listening(hangs) as other, receiver() as (port, asked):
        ports = (one, other, port)
        child = _child(" ".join(f"json://127.0.0.1:{each}/" for each in ports))
        said = child.communicate(timeout=600)[1]
        assert child.returncode == -signal.SIGTERM, said
    assert [body["title"] for _, body in asked] == ["act: mine, step 11"]
    assert "SIGTERM" in asked[0][1]["message"]
    assert "rl_loss is NaN or infinite" in asked[0][1]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM", "fails"])
def test_the_last_message_has_ten_seconds_in_a_hurry_too(how: str) -> None:
    """After SIGTERM, and where other ranks wait for this one: a mail server that is slow to greet gets it."""
    mails: list[str] = []
    with listening(taking_mail(6.0, mails)) as port:
        address = f"mailto://127.0.0.1:{port}?from=a@example.org&to=b@example.org&mode=insecure"
        child = _child(address, "at once", how, RANK="0", WORLD_SIZE="2")
        said = child.communicate("\n", timeout=600)[1]
        assert child.returncode == (1 if how == "fails" else -signal.SIGTERM), said
    [mail] = mails
    said = quopri.decodestring(mail).decode()
    assert ("has failed with RuntimeError" if how == "fails" else "(SIGTERM)") in said


def test_one_can_be_tried_whatever_the_others_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rlexporter notify --test` asks all at once, and waits for none for ever."""
    monkeypatch.setattr(services, "SEND_SECONDS", 2.0)
    with listening(EVIL["drips its body"]) as evil, receiver() as (port, asked):
        ports = (evil, port, evil)
        monkeypatch.setenv("RLEXPORTER_NOTIFY", " ".join(f"json://127.0.0.1:{each}/" for each in ports))
        assert main.main(["notify", "--test"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in said] == ["json: not taken", "json: sent", "json: not taken"]
    assert len(asked) == 1
