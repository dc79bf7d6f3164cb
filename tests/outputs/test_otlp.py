"""Pushes by OTLP: where they go, when, and what it costs that nobody takes them."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from itertools import product
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest
import trustme

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from opentelemetry import context
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from rlexporter import Exporter
from rlexporter.model.errors import SetupError
from rlexporter.model.snapshot import Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.outputs import otlp
from rlexporter.run import identity
from tests.e2e.collectors import HTTP, PROTOCOLS, Collector, collector, over_http
from tests.planted import UNREADABLE
from tests.served import errors
from tests.tools import answering, eventually, free_port

SNAPSHOT = Snapshot(labels={"run": "a", "rank": "0"}, samples={})


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'.*grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=udp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is 'udp'"),
        ("OTEL_METRIC_EXPORT_INTERVAL=15s", "OTEL_METRIC_EXPORT_INTERVAL is '15s'.*positive number"),
        ("OTEL_METRIC_EXPORT_INTERVAL=0", "OTEL_METRIC_EXPORT_INTERVAL is '0'"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT=inf", "OTEL_EXPORTER_OTLP_TIMEOUT is 'inf'"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=nan", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT is 'nan'"),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_COMPRESSION=lzma",
            "lzma.*OTEL_EXPORTER_OTLP_COMPRESSION",
        ),
    ],
)
def test_what_cannot_be_is_said_at_the_start(variables: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name of the variable, what is wrong, and what is expected; also what only an exporter refuses."""
    for each in variables.split():
        monkeypatch.setenv(*each.split("="))
    with pytest.raises(SetupError, match=said):
        Exporter(port=0, otlp="on").start()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_the_extra(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    for name in ("http", "grpc"):
        monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{name}.metric_exporter", None)
    with pytest.raises(SetupError, match=r"pip install 'rlexporter\[otlp\]'"):
        Exporter(port=0, otlp="on").start()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """After each try: the interval, and how many have failed in a row. The next one comes at once, up to the fourth."""
    found: list[tuple[float, int]] = []

    def wait(seconds: float, failures: int) -> float:
        found.append((seconds, failures))
        return 0.001 if len(found) < 4 else 600.0

    monkeypatch.setattr(otlp, "wait", wait)
    return found


@contextlib.contextmanager
def _pushing(at: Collector, **settings: Any) -> Iterator[Exporter]:
    """An exporter that pushes there, closed at the end."""
    exporter = Exporter(port=0, otlp=at.address, **settings).start()
    try:
        yield exporter
    finally:
        exporter.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_is_pushed_to_its_end(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last push has the final state, NaN as it is, and all labels of a series; no thread is left."""
    before = set(threading.enumerate())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with collector(protocol) as at:
        with _pushing(at, run="a", algorithm="grpo", labels={"team": "llm"}) as exporter:
            exporter.log({"loss": nan, "reward": 1.5, "kl": inf})
            exporter.end()
        last = at.pushes[-1]

        assert last.value("rl_run_state", run="a", rank="0", team="llm", state="finished") == 1.0
        assert last.value("rl_run_state", state="running") == 0.0
        assert last.value("rl_reward_mean") == 1.5
        assert last.value("rl_kl_per_token") == inf
        assert isnan(last.value("rl_loss") or 0.0)
        assert last.value("rl_nonfinite_values_total", metric="rl_loss", kind="nan") == 1.0
        assert last.resource["service.instance.id"] == "a/0"
        assert last.path == ("/v1/metrics" if protocol == HTTP else "")
        assert errors(exporter) == 0
    assert not {each for each in threading.enumerate() if each.name.startswith("rlexporter")} - before


def test_a_push_at_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds, as OpenTelemetry counts it."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    started = time.monotonic()
    with collector(HTTP) as at, _pushing(at, run="a"):
        eventually(lambda: len(at.pushes) >= 6)
        assert time.monotonic() - started > 0.2


def test_the_resource_follows_the_name_of_the_run() -> None:
    """Which is known when the training begins."""
    with collector(HTTP) as at, _pushing(at) as exporter:
        earlier = exporter.name
        eventually(lambda: at.pushes)
        exporter.run.begin(RunFacts(algorithm="grpo", step=0, run_name="b"))
        eventually(lambda: at.pushes[-1].value("rl_run_state", run="b", state="running"))

        assert at.pushes[0].resource["service.instance.id"] == f"{earlier}/0"
        assert at.pushes[-1].resource["service.instance.id"] == "b/0"


@pytest.mark.parametrize("resumes", [False, True])
def test_nothing_is_told_of_a_run_that_is_not_known(
    tmp_path: Path, waits: list[tuple[float, int]], resumes: bool
) -> None:
    """In a folder with checkpoints of another one, until training begins, which may resume them: no push, no target."""
    targets, output = tmp_path / "targets", tmp_path / "output"
    checkpoint = output / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    identity.keep(identity.Identity("old", 3), str(output))
    with collector(HTTP) as at:
        exporter = Exporter(port=0, otlp=at.address, discovery=targets, linger=0)
        exporter.run.prepare(RunFacts(algorithm="grpo", output_dir=str(output)))
        exporter.start()
        eventually(lambda: len(waits) == 4)  # by now a push too early would have come
        assert list(targets.iterdir()) == []
        resumed = str(checkpoint) if resumes else None
        exporter.run.begin(RunFacts(algorithm="grpo", output_dir=str(output), step=5, resumed_from=resumed))
        eventually(lambda: at.pushes)
        eventually(lambda: [*targets.iterdir()])
        assert [each.name.startswith(f"rlexporter-{exporter.name}-") for each in targets.iterdir()] == [True]
        exporter.close()

        assert {push.resource["service.instance.id"] for push in at.pushes} == {f"{exporter.name}/0"}
        assert exporter.name == "old" if resumes else exporter.name.startswith("output-")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_variables_of_opentelemetry(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the setting says no more than `on`."""
    with collector(protocol) as at:
        for name, value in {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "neither",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": at.address,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret,x-scope-orgid=ml",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod",
            "OTEL_METRICS_EXPORTER": "none",
        }.items():
            monkeypatch.setenv(name, value)
        with Exporter(run="a", port=0, otlp=True):
            eventually(lambda: at.pushes)
        sent = at.pushes[0]

    assert (sent.headers["api-key"], sent.headers["x-scope-orgid"]) == ("secret", "ml")
    assert sent.resource["deployment.environment"] == "prod"
    assert sent.value("rl_run_state", state="starting") == 1.0
    if protocol == HTTP:
        assert sent.path == "/v1/metrics"
        assert sent.headers["content-encoding"] == "gzip"


def test_an_endpoint_for_metrics_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an address in the setting wins over both."""
    with collector(HTTP) as at, collector(HTTP) as other:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{at.address}/own/path")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", other.address)
        with Exporter(run="a", port=0, otlp="on"):
            eventually(lambda: at.pushes)
        assert at.pushes[0].path == "/own/path"
        assert not other.pushes
        with Exporter(run="a", port=0, otlp=f"{other.address}/base/"):
            eventually(lambda: other.pushes)
        assert other.pushes[0].path == "/base/v1/metrics"


def test_a_certificate_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that speaks TLS is trusted if its certificate was named, and else not spoken to."""
    authority, file = trustme.CA(), tmp_path / "collector.pem"
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with over_http(file) as at:
        with _pushing(at, run="a") as exporter:
            eventually(lambda: errors(exporter))
        assert not at.pushes
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "authority.pem"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        with _pushing(at, run="a"):
            eventually(lambda: at.pushes)


def test_the_switch_of_opentelemetry(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where its SDK is disabled nothing is pushed, and somebody who wonders is told."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    with collector(HTTP) as at:
        with _pushing(at, run="a") as exporter:
            exporter.log({"loss": 1.0})
        assert not at.pushes
    assert [each.message for each in caplog.records] == ["nothing is pushed by OTLP: OTEL_SDK_DISABLED is true"]


def test_after_failures_it_waits_longer() -> None:
    """Twice as long each time, up to five minutes; for as long as a collector may be away."""
    assert [otlp.wait(15.0, failures) for failures in range(7)] == [15, 30, 60, 120, 240, 300, 300]
    assert otlp.wait(15.0, 10_000_000) == 300.0
    assert otlp.wait(600.0, 3) == 600.0


class Fake(MetricExporter):
    """Fails as often as it is told. What was done with all of them is in ``log``."""

    def __init__(
        self, log: list[Any], failures: list[Exception | MetricExportResult], seconds: float, _: object
    ) -> None:
        super().__init__()
        self.log = log
        self.failures = failures
        log.append(seconds)

    def export(self, *_: Any, **__: Any) -> MetricExportResult:
        """Once."""
        self.log.append(f"traced: {not context.get_value('suppress_instrumentation')}")
        outcome = self.failures.pop(0) if self.failures else MetricExportResult.SUCCESS
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def shutdown(self, *_: Any, **__: Any) -> None:
        """For ever."""
        self.log.append("shut")

    def force_flush(self, *_: Any) -> bool:
        """There is nothing to flush."""
        return True


def test_an_exporter_is_kept_while_it_works() -> None:
    """After a failure there is a new one, and for the end one with the time that is left. No push is itself traced."""
    log: list[Any] = []
    failed: list[Exception] = []
    fault = ValueError("a fault of ours")
    done = MetricExportResult.SUCCESS
    outcomes: list[Exception | MetricExportResult] = [done, done, MetricExportResult.FAILURE, fault]
    pusher = otlp.Pusher(lambda: SNAPSHOT, failed.append, partial(Fake, log, outcomes), 600.0, 60.0)
    pusher.start()
    for pushes in range(1, 6):
        eventually(lambda n=pushes: log.count("traced: False") == n)
        pusher.wake()
    eventually(lambda: log.count("traced: False") == 6)
    pusher.close()

    end = log.pop(-3)
    assert 30.0 < end < 60.0
    assert log == [
        *(60.0, "shut"),
        *(60.0, "traced: False", "traced: False", "traced: False", "shut"),
        *(60.0, "traced: False", "shut"),
        *(60.0, "traced: False", "traced: False", "shut"),
        *("traced: False", "shut"),
    ]
    assert [type(each) for each in failed] == [otlp.PushError, ValueError]


def test_while_it_fails_it_rests_longer_also_if_woken() -> None:
    """As long as `wait` says, but for the rest: a condition that flaps undoes no back-off. A success ends it."""
    outcomes: list[Exception | MetricExportResult] = [MetricExportResult.FAILURE] * 40
    pusher = otlp.Pusher(lambda: SNAPSHOT, lambda _: None, partial(Fake, [], outcomes), 15.0, 10.0)
    tried = [(pusher._try(), pusher._rest) for _ in range(9)]
    assert [wait for wait, _ in tried] == [otlp.wait(15.0, failures) for failures in range(1, 10)]
    assert [rest for _, rest in tried] == [0.5, 1.0, 2.0, 4.0, 8.0, *[otlp.INTERVAL_SECONDS] * 4]
    outcomes.clear()
    assert (pusher._try(), pusher._rest) == (15.0, 0.25)
    pusher.close()


class Hanging(Fake):
    """Notes that it was asked, and hangs until it is let go."""

    def __init__(self, asked: list[int], gate: threading.Event, *_: object) -> None:
        super().__init__([], [], 0.0, None)
        self.asked = asked
        self.gate = gate

    def export(self, *_: Any, **__: Any) -> MetricExportResult:
        """Once."""
        self.asked.append(1)
        self.gate.wait()
        return super().export()


@pytest.mark.parametrize("patience", [None, 0.1])
def test_nothing_is_pushed_after_the_time_for_the_end(patience: float | None) -> None:
    """Where a push hangs that long no other one begins. The end does not wait for it, sooner or later."""

    def alive() -> bool:
        return any(each.name == "rlexporter-otlp" for each in threading.enumerate())

    asked: list[int] = []
    gate = threading.Event()
    pusher = otlp.Pusher(lambda: SNAPSHOT, lambda _: None, partial(Hanging, asked, gate), 600.0, 0.2)
    pusher.start()
    try:
        eventually(lambda: asked)
        pusher.close(patience)
        assert alive()
    finally:
        gate.set()
    eventually(lambda: not alive())
    assert len(asked) == 1


def test_a_log_line_waits_for_no_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a collector takes its time, line after line is taken; the last push has the last of them."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with collector(HTTP) as at:
        at.gate.clear()
        with _pushing(at, run="a") as exporter:
            eventually(lambda: at.pushes)
            for step in range(1, 9):
                exporter.log({"loss": float(step)}, step=step)
            assert not at.gate.is_set()
            assert len(at.pushes) == 1
            at.gate.set()
        assert at.pushes[-1].value("rl_loss") == 8.0
        assert errors(exporter) == 0


@contextlib.contextmanager
def _dead(how: str) -> Iterator[str]:
    """A collector where nobody listens, that never answers, or that answers with this status."""
    if how == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
    elif how == "hangs":
        with socket.create_server(("127.0.0.1", 0)) as sock:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    elif how.isdecimal():
        with over_http() as at:
            at.status = int(how)
            yield at.address
    else:
        with answering(partial(_take_nothing, how)) as port:
            yield f"http://127.0.0.1:{port}"


def _take_nothing(how: str, asked: BaseHTTPRequestHandler) -> None:
    """Answer what the exporter takes for a success: a page to log in, a way to one, or that nothing was kept."""
    if asked.command == "POST":
        asked.rfile.read(int(asked.headers["content-length"]))
    redirected = how.startswith("redirects") and asked.path != "/login"
    asked.send_response(int(how.split()[1]) if redirected else 200)
    asked.send_header("Content-Type", "application/x-protobuf" if how == "keeps nothing" else "text/html")
    if redirected:
        asked.send_header("Location", "/login")
    asked.end_headers()
    if how == "keeps nothing":
        kept = ExportMetricsServiceResponse()
        kept.partial_success.rejected_data_points, kept.partial_success.error_message = 3, "too old"
        asked.wfile.write(kept.SerializeToString())
    elif not how.startswith("redirects"):
        asked.wfile.write(b"<html>Who are you?</html>")


TAKES_NOTHING = ("503", "400", "shows a page", "redirects 302", "redirects 307", "keeps nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "how"), [*product(PROTOCOLS, ("refuses", "hangs")), *product([HTTP], TAKES_NOTHING)]
)
def test_a_dead_collector_costs_a_counter(
    protocol: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The log has one line, chance is left alone, and the end comes in the time of one export."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    before = set(threading.enumerate())
    drawn = random.getstate()
    with _dead(how) as address:
        exporter = Exporter(run="a", port=0, otlp=address).start()
        exporter.log({"loss": 1.0})
        eventually(lambda: errors(exporter) >= 3)
        exporter.end()
        exporter.close()  # which waits no longer than it says: see the test of what hangs

    assert random.getstate() == drawn, "the random state is the training's"
    eventually(lambda: not set(threading.enumerate()) - before)
    assert [each.name for each in caplog.records] == ["rlexporter"]
    assert re.match(r"otlp failed: .+ Training goes on", caplog.records[0].getMessage())
    assert not [line for line in capfd.readouterr().err.splitlines() if not line.startswith("rlexporter: ")]


def test_an_end_in_the_middle_of_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs and the last push after it share one time-out; the last one has the final state."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with collector(HTTP) as at:
        at.status = 503
        exporter = Exporter(run="a", port=0, otlp=at.address).start()
        eventually(lambda: at.pushes)
        exporter.log({"loss": 1.0})
        exporter.end()
        at.status = 200
        started = time.monotonic()
        exporter.close()
        assert time.monotonic() - started < 600.0
        assert at.pushes[-1].value("rl_run_state", state="finished") == 1.0
        assert errors(exporter) == 0


def test_other_exporters_are_let_be(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What OpenTelemetry logs for somebody else while a push hangs is logged; afterwards no filter is left."""
    theirs = logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    filters = list(theirs.filters)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with collector(HTTP) as at:
        at.gate.clear()
        with _pushing(at, run="a"):
            eventually(lambda: at.pushes)
            assert len(theirs.filters) > len(filters)
            theirs.error("their own trouble")
            at.gate.set()

    assert "their own trouble" in [each.getMessage() for each in caplog.records]
    assert theirs.filters == filters


@pytest.mark.parametrize("planted", UNREADABLE)
@pytest.mark.parametrize("name", ["CERTIFICATE", "METRICS_CERTIFICATE", "CLIENT_KEY", "METRICS_CLIENT_CERTIFICATE"])
def test_a_certificate_that_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, name: str
) -> None:
    """It is said at the start, by either protocol: the exporters would wait for whoever writes to a pipe."""
    path = tmp_path / "authority.pem"
    UNREADABLE[planted][1](path)
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(path))
    for protocol in (otlp.GRPC, otlp.HTTP):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        with pytest.raises(SetupError, match=f"OTEL_EXPORTER_OTLP_{name} is .* not a regular file"):
            Exporter(run="r", port=0, otlp="http://127.0.0.1:1").start()
