"""Pushes by OTLP: what is in them, where they go, when, and what it costs that nobody takes them."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Sent
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from rlexporter import Exporter
from rlexporter.catalog import CATALOG, NAMED
from rlexporter.model.errors import SetupError
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.outputs import otlp
from rlexporter.outputs.otlp_data import Origin, metrics_data
from rlexporter.outputs.prometheus import encode
from rlexporter.run import identity
from rlexporter.store.store import Store
from tests.e2e.collectors import HTTP, PROTOCOLS, Collector, Found, Push, collector, over_http
from tests.outputs.test_prometheus import full_store, golden_store
from tests.served import errors
from tests.tools import eventually, free_port

NOW = 1_800_000_000_000_000_000
SNAPSHOT = Snapshot(
    labels={"run": "a", "rank": "3", "team": "llm"},
    samples={
        Series(NAMED["rl_loss"]): nan,
        Series(NAMED["rl_grad_norm"]): inf,
        Series(NAMED["rl_reward_mean"]): -inf,
        Series(NAMED["rl_kl_per_token"]): -0.25,
        Series(NAMED["rl_step"]): 7,
        Series(NAMED["rl_steps_total"]): 12.0,
        Series(NAMED["rl_nonfinite_values_total"], ("rl_loss", "nan")): 2,
        Series(NAMED["rl_run_exception_info"], ("OSError",)): 1.0,
    },
    buckets={
        Series(NAMED["rl_advantage_dist"]): Histogram((-1.0, 0.5), (2, 0, 3), 4.5, 2.75, -2.0, 2.0),
        Series(NAMED["rl_completion_length_dist"]): Histogram((10.0, 20.0), (1, 2, 0), 45.0, 0.0, 9.0, 19.0),
        Series(NAMED["rl_reward_function_dist"], ("f",)): Histogram.empty((-1.0, 1.0)),
    },
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("OTEL_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in [each for each in os.environ if each.startswith(foreign)]:
        monkeypatch.delenv(name)


def _sent(snapshot: Snapshot) -> Push:
    """What goes over the wire, through OpenTelemetry's own encoder."""
    data = metrics_data(snapshot, Origin().resource(snapshot.labels), NOW)
    return Push(ExportMetricsServiceRequest.FromString(encode_metrics(data).SerializeToString()), {})


def _metrics(push: Push) -> dict[str, Sent]:
    (found,) = push.request.resource_metrics
    (scope,) = found.scope_metrics
    assert len({each.name for each in scope.metrics}) == len(scope.metrics)
    return {each.name: each for each in scope.metrics}


def _key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"run": "a", "rank": "3", "team": "llm", **labels}.items())


def _exact(found: Found) -> dict[object, str]:
    """The same, with NaN equal to itself."""
    return {key: repr(float(value)) for key, value in found.items()}


def test_every_series_of_a_snapshot() -> None:
    """Name, labels and value, as Prometheus would make them; NaN and infinity as they are, and nothing else."""
    advantage, lengths, function = "rl_advantage_dist", "rl_completion_length_dist", "rl_reward_function_dist"

    assert _exact(_sent(SNAPSHOT).series) == _exact(
        {
            _key("rl_loss"): nan,
            _key("rl_grad_norm"): inf,
            _key("rl_reward_mean"): -inf,
            _key("rl_kl_per_token"): -0.25,
            _key("rl_step"): 7.0,
            _key("rl_steps_total"): 12.0,
            _key("rl_nonfinite_values_total", metric="rl_loss", kind="nan"): 2.0,
            _key("rl_run_exception_info", exception="OSError"): 1.0,
            _key(f"{advantage}_bucket", le="-1.0"): 2.0,
            _key(f"{advantage}_bucket", le="0.5"): 2.0,
            _key(f"{advantage}_bucket", le="inf"): 5.0,
            _key(f"{advantage}_count"): 5.0,
            _key(f"{advantage}_positive_sum_total"): 4.5,
            _key(f"{advantage}_negative_sum_total"): 2.75,
            _key(f"{lengths}_bucket", le="10.0"): 1.0,
            _key(f"{lengths}_bucket", le="20.0"): 3.0,
            _key(f"{lengths}_bucket", le="inf"): 3.0,
            _key(f"{lengths}_count"): 3.0,
            _key(f"{lengths}_sum"): 45.0,
            _key(f"{function}_bucket", le="-1.0", reward_function="f"): 0.0,
            _key(f"{function}_bucket", le="1.0", reward_function="f"): 0.0,
            _key(f"{function}_bucket", le="inf", reward_function="f"): 0.0,
            _key(f"{function}_count", reward_function="f"): 0.0,
            _key(f"{function}_positive_sum_total", reward_function="f"): 0.0,
            _key(f"{function}_negative_sum_total", reward_function="f"): 0.0,
        }
    )


def test_names_have_dots() -> None:
    """And no `_total`, which a receiver puts there."""
    assert set(_metrics(_sent(SNAPSHOT))) == {
        *("rl.loss", "rl.grad_norm", "rl.reward.mean", "rl.kl.per_token", "rl.step", "rl.run.exception_info"),
        *("rl.steps", "rl.nonfinite_values", "rl.advantage.dist", "rl.completion_length.dist"),
        *("rl.advantage.dist.positive_sum", "rl.advantage.dist.negative_sum", "rl.reward_function.dist"),
        *("rl.reward_function.dist.positive_sum", "rl.reward_function.dist.negative_sum"),
    }


def test_counts_of_a_histogram_are_those_of_each_bucket() -> None:
    """Minimum and maximum are there where any value is; a sum only where it can but grow."""
    sent = _metrics(_sent(SNAPSHOT))
    (signed,) = sent["rl.advantage.dist"].histogram.data_points
    (lengths,) = sent["rl.completion_length.dist"].histogram.data_points
    (nothing,) = sent["rl.reward_function.dist"].histogram.data_points

    assert (list(signed.explicit_bounds), list(signed.bucket_counts), signed.count) == ([-1.0, 0.5], [2, 0, 3], 5)
    assert (signed.min, signed.max, signed.HasField("sum")) == (-2.0, 2.0, False)
    assert (lengths.min, lengths.max, lengths.sum) == (9.0, 19.0, 45.0)
    assert (nothing.count, nothing.HasField("min"), nothing.HasField("max")) == (0, False, False)


def test_a_push_is_one_moment() -> None:
    """All points have one time, and the same start in every push: a later one would say that counters began anew."""
    times, starts = set(), set()
    for _ in range(2):
        for metric in _metrics(_sent(SNAPSHOT)).values():
            times |= {point.time_unix_nano for point in metric.gauge.data_points}
            for point in (*metric.sum.data_points, *metric.histogram.data_points):
                times.add(point.time_unix_nano)
                starts.add(point.start_time_unix_nano)
        time.sleep(0.002)

    assert times == {NOW}
    assert len(starts) == 1
    assert 0 < time.time_ns() - starts.pop() < 3600 * 10**9


@pytest.mark.parametrize("make", [golden_store, partial(full_store, "grpo"), partial(full_store, "ppo")])
def test_pushed_is_what_is_scraped(make: Callable[[], Store]) -> None:
    """To the last bit, NaN too; beside it only how many values those histograms have that can be negative."""
    snapshot = make().snapshot
    body, _ = encode(snapshot, "text/plain;version=0.0.4")
    scraped: Found = {}
    for sample in (sample for family in parse_text(body.decode()) for sample in family.samples):
        labels = {name: value for name, value in sample.labels.items() if value}
        if "le" in labels:
            labels["le"] = str(float(labels["le"]))
        scraped[sample.name, frozenset(labels.items())] = sample.value
    pushed = {
        (name, frozenset(pair for pair in labels if pair[1])): value
        for (name, labels), value in _sent(snapshot).series.items()
    }

    assert len(scraped) > 150
    assert _exact({key: pushed[key] for key in scraped}) == _exact(scraped)
    more = {name for name, _ in pushed.keys() - scraped.keys()}
    assert more == {f"{s.metric.series}_count" for s in snapshot.buckets if s.metric.signed}


def test_every_name_is_that_of_a_scrape() -> None:
    """By the rules of Prometheus' receiver: words and underscores, and `total` at the end of what grows, once."""
    samples = {Series(m, ("x",) * len(m.labels)): 1.0 for m in CATALOG if m.kind is not Kind.HISTOGRAM}
    buckets = {
        Series(m, ("x",) * len(m.labels)): Histogram.empty(m.bounds) for m in CATALOG if m.kind is Kind.HISTOGRAM
    }
    expected = {m.series for m in CATALOG}
    expected |= {f"{m.series}_{sign}_sum_total" for m in CATALOG if m.signed for sign in ("positive", "negative")}

    named = set()
    for name, metric in _metrics(_sent(Snapshot({"run": "a"}, samples, buckets=buckets))).items():
        words = re.findall(r"[a-zA-Z0-9]+", name)
        grows = metric.WhichOneof("data") == "sum"
        named.add("_".join([word for word in words if word != "total" or not grows] + ["total"] * grows))
        assert metric.description, name
        assert not metric.unit, name
    assert named == expected


def _resource(**labels: str) -> dict[str, object]:
    found: dict[str, object] = dict(Origin().resource(labels).attributes)
    assert {found.pop(f"telemetry.sdk.{each}") for each in ("name", "language")} == {"opentelemetry", "python"}
    assert found.pop("telemetry.sdk.version")
    return found


def test_the_resource_is_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run and rank; of the process nothing: no command line, no path, no user. What the user says of it wins."""
    assert _resource(run="a", rank="3") == {"service.name": "rlexporter", "service.instance.id": "a/3"}

    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,k8s.namespace.name=ml%2Ftrain")
    assert _resource(run="a", rank="0") == {
        "service.name": "x",
        "service.instance.id": "a/0",
        "k8s.namespace.name": "ml/train",
    }
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "train")
    assert _resource(run="a", rank="0") == {"service.name": "train", "service.instance.id": "mine"}


@pytest.mark.parametrize(
    ("variable", "value", "setting", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "on", "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'.*grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "udp", "on", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is 'udp'"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "15s", "on", "OTEL_METRIC_EXPORT_INTERVAL is '15s'.*positive number"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "on", "OTEL_METRIC_EXPORT_INTERVAL is '0'"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "inf", "on", "OTEL_EXPORTER_OTLP_TIMEOUT is 'inf'"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "nan", "on", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT is 'nan'"),
        ("UNUSED", "", "collector:4318", "RLEXPORTER_OTLP is 'collector:4318'.*http://"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(
    variable: str, value: str, setting: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name of the variable, what is wrong, and what is expected; the exporter is closed."""
    monkeypatch.setenv(variable, value)
    exporter = Exporter(port=0, otlp=setting)
    with pytest.raises(SetupError, match=said):
        exporter.start()
    assert exporter.port is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_the_extra(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    for name in ("http", "grpc"):
        monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{name}.metric_exporter", None)
    with pytest.raises(SetupError, match=r"pip install 'rlexporter\[otlp\]'"):
        Exporter(port=0, otlp="on").start()


def test_compression_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an exporter refuses is said at the start too."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma")
    with pytest.raises(SetupError, match=r"lzma.*OTEL_EXPORTER_OTLP_COMPRESSION"):
        Exporter(port=0, otlp="on").start()


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


def test_a_push_at_once_and_at_each_change_of_state() -> None:
    """Long before the interval is over."""
    with collector(HTTP) as at, _pushing(at, run="a") as exporter:
        eventually(lambda: at.pushes)
        exporter.run.begin(RunFacts(algorithm="grpo", step=0))
        eventually(lambda: at.pushes[-1].value("rl_run_state", state="running"))


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


def test_nothing_is_pushed_for_a_run_that_is_not_known(tmp_path: Path) -> None:
    """In a folder with checkpoints of another one, until training begins: it might resume them."""
    (tmp_path / "checkpoint-5").mkdir()
    identity.keep(identity.Identity("old", 3), str(tmp_path))
    with collector(HTTP) as at:
        exporter = Exporter(port=0, otlp=at.address, linger=0)
        exporter.run.prepare(RunFacts(algorithm="grpo", output_dir=str(tmp_path)))
        exporter.start()
        time.sleep(1.0)  # a push too early has the time to come
        exporter.run.begin(RunFacts(algorithm="grpo", output_dir=str(tmp_path), step=0))
        eventually(lambda: at.pushes)
        exporter.close()

        assert {push.resource["service.instance.id"] for push in at.pushes} == {f"{exporter.name}/0"}
        assert exporter.name.startswith(f"{tmp_path.name}-")


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
    file = tmp_path / "collector.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=collector"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout collector.pem -out certificate.pem"
    subprocess.run(command.split(), check=True, capture_output=True, cwd=tmp_path)
    file.write_text(file.read_text() + (tmp_path / "certificate.pem").read_text())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    with over_http(file) as at:
        with _pushing(at, run="a") as exporter:
            eventually(lambda: errors(exporter))
        assert not at.pushes
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "certificate.pem"))
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

    def __init__(self, log: list[Any], failures: list[Exception | MetricExportResult], seconds: float) -> None:
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


def test_the_wait_grows_while_it_fails_and_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by what is asked for: how long to wait after so many failures in a row."""
    asked: list[tuple[float, int]] = []

    def wait(seconds: float, failures: int) -> float:
        asked.append((seconds, failures))
        return 0.001

    monkeypatch.setattr(otlp, "wait", wait)
    outcomes: list[Exception | MetricExportResult] = [MetricExportResult.FAILURE, OSError("away")]
    pusher = otlp.Pusher(lambda: SNAPSHOT, lambda _: None, partial(Fake, [], outcomes), 600.0, 10.0)
    pusher.start()
    eventually(lambda: len(asked) >= 4)
    pusher.close()

    assert asked[:4] == [(600.0, 1), (600.0, 2), (600.0, 0), (600.0, 0)]


def test_while_it_fails_it_rests_longer_also_if_woken() -> None:
    """A condition that flaps does not undo the back-off; and after a success it is as fast as before."""
    outcomes: list[Exception | MetricExportResult] = [MetricExportResult.FAILURE] * 40
    pusher = otlp.Pusher(lambda: SNAPSHOT, lambda _: None, partial(Fake, [], outcomes), 600.0, 10.0)
    rests = []
    for _ in range(9):
        pusher._try()
        rests.append(pusher._rest)
    assert rests == [0.5, 1.0, 2.0, 4.0, 8.0, *[otlp.INTERVAL_SECONDS] * 4]
    outcomes.clear()
    pusher._try()
    assert pusher._rest == 0.25
    pusher.close()


class Hanging(Fake):
    """Notes that it was asked, and hangs until it is let go."""

    def __init__(self, asked: list[int], gate: threading.Event, _: float) -> None:
        super().__init__([], [], 0.0)
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


class Dead:
    """Collectors that take nothing."""

    @staticmethod
    @contextlib.contextmanager
    def refuses() -> Iterator[str]:
        """Nobody listens."""
        yield f"http://127.0.0.1:{free_port()}"

    @staticmethod
    @contextlib.contextmanager
    def hangs() -> Iterator[str]:
        """It listens, and never answers."""
        with socket.create_server(("127.0.0.1", 0)) as sock:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"

    @staticmethod
    @contextlib.contextmanager
    def answers(status: int) -> Iterator[str]:
        """That it cannot, or that it does not want to."""
        with over_http() as at:
            at.status = status
            yield at.address


@pytest.mark.parametrize(
    ("protocol", "dead"),
    [
        *((each, Dead.refuses) for each in PROTOCOLS),
        *((each, Dead.hangs) for each in PROTOCOLS),
        (HTTP, partial(Dead.answers, 503)),
        (HTTP, partial(Dead.answers, 400)),
    ],
    ids=["http-refuses", "grpc-refuses", "http-hangs", "grpc-hangs", "http-503", "http-400"],
)
def test_a_dead_collector_costs_a_counter(
    protocol: str,
    dead: Callable[[], contextlib.AbstractContextManager[str]],
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
    with dead() as address:
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


def test_what_an_outage_has_held_back_comes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the next push would have waited; and each push is tried anew."""
    with collector(HTTP) as at:
        at.status = 400
        with _pushing(at, run="a") as exporter:
            eventually(lambda: errors(exporter))
            at.status = 200
            exporter.log({"loss": 1.0})
            exporter.end()
        assert at.pushes[-1].value("rl_run_state", state="finished") == 1.0
        assert at.pushes[-1].value("rlexporter_errors_total", where="otlp") == errors(exporter)


def test_an_end_in_the_middle_of_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs and the last push after it share one time-out; the last one has the final state."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with collector(HTTP) as at:
        at.status = 503
        exporter = Exporter(run="a", port=0, otlp=at.address).start()
        eventually(lambda: at.pushes)
        exporter.log({"loss": 1.0})
        exporter.end()
        at.status = 200
        started = time.monotonic()
        exporter.close()
        assert time.monotonic() - started < 60.0
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
