"""Those who take pushes: collectors made of OpenTelemetry's own service and messages, over HTTP and gRPC."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra `otlp` is not installed")

import grpc  # type: ignore[import-untyped] # it has no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, NumberDataPoint

from tests.tools import answering

GRPC, HTTP = "grpc", "http/protobuf"
PROTOCOLS = (HTTP, GRPC)

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values of series, by name and labels; a bound is written as Python writes a float."""


@dataclass(frozen=True)
class Push:
    """One request. ``headers``: names in lower case."""

    request: ExportMetricsServiceRequest
    headers: Mapping[str, str]
    path: str = ""

    @property
    def resource(self) -> dict[str, str]:
        """The attributes of the resource."""
        (found,) = self.request.resource_metrics
        return _attributes(found.resource.attributes)

    @property
    def series(self) -> Found:
        """The samples that Prometheus makes of it."""
        return translated(self.request)

    def value(self, name: str, **labels: str) -> float | None:
        """The sample of a series that has these labels among others; None where there is none."""
        found = [value for (each, own), value in self.series.items() if each == name and set(labels.items()) <= own]
        assert len(found) <= 1, found
        return found[0] if found else None


@dataclass
class Collector:
    """A listening collector. ``status``: what it answers by HTTP, once ``gate`` is open, as it is at first."""

    address: str = ""
    pushes: list[Push] = field(default_factory=list)
    status: int = 200
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()


def collector(protocol: str) -> contextlib.AbstractContextManager[Collector]:
    """One that takes everything."""
    return over_grpc() if protocol == GRPC else over_http()


@contextlib.contextmanager
def over_http(certificate: Path | None = None) -> Iterator[Collector]:
    """A collector by HTTP; ``certificate``: with its key, to speak TLS."""
    found = Collector()

    def take(asked: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        body = asked.rfile.read(int(headers["content-length"]))
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        found.pushes.append(Push(ExportMetricsServiceRequest.FromString(body), headers, asked.path))
        found.gate.wait()
        asked.send_response(found.status)
        asked.send_header("Content-Type", "application/x-protobuf")
        asked.end_headers()
        asked.wfile.write(ExportMetricsServiceResponse().SerializeToString())

    with answering(take, certificate=certificate) as port:
        found.address = f"http{'s' if certificate else ''}://127.0.0.1:{port}"
        try:
            yield found
        finally:
            found.gate.set()


@contextlib.contextmanager
def over_grpc() -> Iterator[Collector]:
    """A collector by gRPC."""
    found = Collector()

    class Service(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportMetricsServiceResponse:  # noqa: N802 - its own name
            found.pushes.append(Push(request, dict(context.invocation_metadata())))
            return ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        found.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield found
        finally:
            server.stop(None).wait()


def translated(request: ExportMetricsServiceRequest) -> Found:
    """What Prometheus makes of the points: dots to underscores, `_total` behind sums that grow, buckets that add up."""
    found: Found = {}

    def add(name: str, labels: dict[str, str], value: float) -> None:
        key = name, frozenset(labels.items())
        assert key not in found, key
        found[key] = value

    for metric in (each for r in request.resource_metrics for scope in r.scope_metrics for each in scope.metrics):
        name = metric.name.replace(".", "_")
        assert not metric.unit, "a unit would become a part of the name"
        for point in metric.gauge.data_points:
            add(name, _attributes(point.attributes), _number(point))
        for point in metric.sum.data_points:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            add(f"{name}_total", _attributes(point.attributes), _number(point))
        for point in metric.histogram.data_points:
            assert metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            labels, total = _attributes(point.attributes), 0
            for bound, count in zip((*point.explicit_bounds, float("inf")), point.bucket_counts, strict=True):
                total += count
                add(f"{name}_bucket", {**labels, "le": str(bound)}, total)
            add(f"{name}_count", labels, point.count)
            if point.HasField("sum"):
                add(f"{name}_sum", labels, point.sum)
    return found


def _number(point: NumberDataPoint) -> float:
    assert point.WhichOneof("value") == "as_double"
    return point.as_double


def _attributes(found: Iterable[KeyValue]) -> dict[str, str]:
    assert all(each.value.WhichOneof("value") == "string_value" for each in found)
    return {each.key: each.value.string_value for each in found}
