"""What is in a push by OTLP: every series of a snapshot, and the resource."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from math import inf

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Sent

from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.feed.feed import Feed
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.otlp_data import Origin, metrics_data
from rlexporter.outputs.prometheus import encode
from tests.e2e.collectors import Found, Push
from tests.outputs.test_prometheus import full_store, golden_store

NOW = 1_800_000_000_000_000_000
SNAPSHOT = Snapshot(
    labels={"run": "a", "rank": "3", "team": "llm"},
    samples={
        Series(NAMED["rl_grad_norm"]): inf,
        Series(NAMED["rl_kl_per_token"]): -0.25,
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


def _sent(snapshot: Snapshot) -> Push:
    """What goes over the wire, through OpenTelemetry's own encoder."""
    data = metrics_data(snapshot, Origin().resource(snapshot), NOW)
    return Push(ExportMetricsServiceRequest.FromString(encode_metrics(data).SerializeToString()), {})


def _metrics(push: Push) -> dict[str, Sent]:
    (found,) = push.request.resource_metrics
    (scope,) = found.scope_metrics
    assert len({each.name for each in scope.metrics}) == len(scope.metrics)
    return {each.name: each for each in scope.metrics}


def _exact(found: Found) -> dict[object, str]:
    """The same, with NaN equal to itself."""
    return {key: repr(float(value)) for key, value in found.items()}


def test_names_have_dots() -> None:
    """And no `_total`, which a receiver puts there."""
    assert set(_metrics(_sent(SNAPSHOT))) == {
        *("rl.grad_norm", "rl.kl.per_token", "rl.run.exception_info", "rl.steps", "rl.nonfinite_values"),
        *("rl.advantage.dist", "rl.completion_length.dist"),
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
def test_pushed_is_what_is_scraped(make: Callable[[], Feed]) -> None:
    """To the last bit, NaN too."""
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
    assert _exact(pushed) == _exact(scraped)


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


def _resource(rank: str, **info: str) -> dict[str, object]:
    of = NAMED["rl_run_info"]
    samples = {Series(of, tuple(info.get(name, "") for name in of.labels)): 1.0} if info else {}
    found: dict[str, object] = dict(Origin().resource(Snapshot({"run": "a", "rank": rank}, samples)).attributes)
    assert {found.pop(f"telemetry.sdk.{each}") for each in ("name", "language")} == {"opentelemetry", "python"}
    assert found.pop("telemetry.sdk.version")
    return found


def test_the_resource_is_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run and rank; of the process nothing: no command line, no path, no user. What the user says of it wins."""
    run = {"service.name": "rlexporter", "service.instance.id": "a/3", "rl.run.id": "a"}
    assert _resource("3") == run
    known = {"rl.algorithm": "grpo", "rl.model.name": "Qwen/Qwen3-8B", "rl.system": "trl"}
    assert _resource("3", algorithm="grpo", model="Qwen/Qwen3-8B", trl="1.16.0") == {**run, **known}

    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,k8s.namespace.name=ml%2Ftrain,rl.run.id=mine")
    assert _resource("0") == {
        "service.name": "x",
        "service.instance.id": "a/0",
        "k8s.namespace.name": "ml/train",
        "rl.run.id": "mine",
    }
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "train")
    assert _resource("0") == {"service.name": "train", "service.instance.id": "mine", "rl.run.id": "a"}


def test_another_framework_is_named() -> None:
    """A log of verl is no run of TRL."""
    found = Origin().resource(Snapshot({"run": "a", "rank": "0"}, framework="verl")).attributes
    assert found["rl.system"] == "verl"
