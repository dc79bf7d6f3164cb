"""Snapshot -> MetricsData, the form in which the OpenTelemetry SDK hands metrics to its exporters.

Names are the catalog's: with underscores for dots, and `_total` after a sum, they are the names of a scrape.
Everything is cumulative, as in a scrape, and has no unit: a receiver would append it to the name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import (
    Histogram as OtlpHistogram,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Kind, Metric, Series
from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs.prometheus import SUMS, by_metric, help_text, labels
from rlexporter.version import __version__

_SINCE = time.time_ns()
"""Start of this process's counts. All pushes share it: another start time would mean another count."""

_INFO = NAMED["rl_run_info"]
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("rlexporter", __version__)


class Origin:
    """The sender of pushes: run and rank, overridden by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.

    It tells nothing else about this process, its command or its user.
    """

    def __init__(self) -> None:
        self._told = OTELResourceDetector().detect().attributes
        self._base = Resource.create()

    def resource(self, snapshot: Snapshot) -> Resource:
        """Return the resource of a run from its current snapshot: its name can still change.

        `rl.*` are names of a proposal (github.com/open-telemetry/semantic-conventions-genai/issues/88), not yet stable.
        """
        run = snapshot.labels.get("run", "")
        info = next((series.labels for series in snapshot.samples if series.metric is _INFO), ())
        said = dict(zip(_INFO.labels, info, strict=False))
        own = {
            SERVICE_NAME: "rlexporter",
            SERVICE_INSTANCE_ID: f"{run}/{snapshot.labels.get('rank', '')}",
            "rl.run.id": run,
            "rl.algorithm": said.get("algorithm", ""),
            "rl.model.name": said.get("model", ""),
            "rl.system": snapshot.framework or ("trl" if said.get("trl") else ""),
        }
        return self._base.merge(Resource({**{name: value for name, value in own.items() if value}, **self._told}))


def metrics_data(snapshot: Snapshot, resource: Resource, now: int) -> MetricsData:
    """Return everything that ``snapshot`` holds, as of ``now`` (nanoseconds since the epoch)."""
    grouped = by_metric(snapshot).items()
    families = [family for metric, members in grouped for family in _families(metric, snapshot, members, now)]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(_SCOPE, families, "")], "")])


def _families(metric: Metric, snapshot: Snapshot, members: Iterable[Series], now: int) -> Iterator[OtlpMetric]:
    labelled = [(series, labels(snapshot, series)) for series in members]
    if metric.kind is Kind.HISTOGRAM:
        yield from _histogram(metric, [(attributes, snapshot.buckets[series]) for series, attributes in labelled], now)
        return
    points = [_number(attributes, snapshot.samples[series], now) for series, attributes in labelled]
    if metric.kind is Kind.COUNTER:
        yield _sum(metric.otlp_name.removesuffix("_total"), help_text(metric), points)
    else:
        yield OtlpMetric(metric.otlp_name, help_text(metric), "", Gauge(points))


def _histogram(metric: Metric, labelled: list[tuple[dict[str, str], Histogram]], now: int) -> Iterator[OtlpMetric]:
    """Yield the buckets and, if values can be negative, two sums beside them, as in a scrape."""
    points = [_distribution(metric, attributes, counted, now) for attributes, counted in labelled]
    yield OtlpMetric(metric.otlp_name, help_text(metric), "", OtlpHistogram(points, _CUMULATIVE))
    for part, text in SUMS.items() if metric.signed else ():
        totals = [_number(attributes, getattr(counted, part), now) for attributes, counted in labelled]
        yield _sum(f"{metric.otlp_name}.{part}", text.format(metric.series), totals)


def _distribution(metric: Metric, attributes: dict[str, str], counted: Histogram, now: int) -> HistogramDataPoint:
    """Return a point, without a sum if values can be negative: OTLP takes a sum for a counter, which never falls."""
    return HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=_SINCE,
        time_unix_nano=now,
        count=counted.count,
        sum=None if metric.signed else counted.positive_sum,  # type: ignore[arg-type] # optional in the protocol
        bucket_counts=counted.counts,
        explicit_bounds=counted.bounds,
        min=_known(counted.minimum),  # type: ignore[arg-type]
        max=_known(counted.maximum),  # type: ignore[arg-type]
    )


def _sum(name: str, text: str, points: list[NumberDataPoint]) -> OtlpMetric:
    return OtlpMetric(name, text, "", Sum(points, _CUMULATIVE, is_monotonic=True))


def _number(attributes: dict[str, str], value: float, now: int) -> NumberDataPoint:
    return NumberDataPoint(attributes, _SINCE, now, float(value))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
