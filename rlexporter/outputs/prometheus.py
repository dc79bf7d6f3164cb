"""Snapshots -> families of prometheus_client, which knows the text formats and which of them a scraper wants.

The only file that imports prometheus_client.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from itertools import accumulate, chain

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rlexporter.model.metric import AS_IT_IS, Kind, Level, Metric, Series
from rlexporter.model.snapshot import Snapshot

VERSION = version("prometheus-client")

SUMS = {
    "positive_sum": "Sum of the positive values of {}.",
    "negative_sum": "Sum of the absolute negative values of {}.",
}
"""Two counters beside a histogram that takes negative values, whose own sum could fall: their difference is the sum."""

_PROCESS = ProcessCollector(registry=None)
"""What every client library says of its process: `process_resident_memory_bytes` and its like. Only Linux has them."""

_RESOLUTION = 0.001
"""Time resolution of Prometheus, in seconds."""

_END = b"# EOF\n"
"""The last line of an OpenMetrics text."""

_Labels = tuple[tuple[str, str], ...]
_Series = dict[tuple[str, _Labels], tuple["array[float]", "array[float]"]]
"""By name and labels the times of a series, and the value at each."""


def encode(snapshot: Snapshot, accept: str, names: Iterable[str] = (), *, process: bool = False) -> tuple[bytes, str]:
    """Return body and Content-Type for the ``accept`` header of a scrape, limited to the series ``names`` if any.

    ``process``: with the series of this process, which have no labels.
    """
    encoder, content_type = _encoder(accept)
    wanted = frozenset(names)
    plain = content_type.startswith("text/plain")
    found = chain(_PROCESS.collect() if process else (), families(snapshot, counts=plain))
    return encoder(_Families(_restricted(found, wanted) if wanted else found)), content_type


def content_type(accept: str) -> str:
    """Return the Content-Type that `encode` gives for the ``accept`` header of a scrape."""
    return _encoder(accept)[1]


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # prometheus_client cannot compare a version such as `1.x`
        return choose_encoder("")


def families(snapshot: Snapshot, *, counts: bool = False) -> Iterator[MetricFamily]:
    """Yield every family of ``snapshot``, sorted by name; each sample carries the labels of the run.

    ``counts``: histograms that take negative values have a count as well.
    """
    for metric, members in sorted(by_metric(snapshot).items(), key=lambda item: item[0].series):
        ordered = sorted(members, key=lambda series: series.labels)
        if metric.kind is Kind.HISTOGRAM:
            yield from _histogram(metric, snapshot, ordered, counts)
        else:
            suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(metric.kind, "")
            family = MetricFamily(metric.series.removesuffix(suffix), help_text(metric), metric.kind.value)
            for series in ordered:
                family.add_sample(metric.series, labels(snapshot, series), snapshot.samples[series])
            yield family


class _Families(Collector):
    """Adapts families to the collector that an encoder wants."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[MetricFamily]:
        return self._families


def _histogram(metric: Metric, snapshot: Snapshot, ordered: list[Series], counts: bool) -> Iterator[MetricFamily]:
    """Yield the buckets, and a sum if it can only grow.

    With negative values a sum could fall, which reads as a restart of the process. Two counters, of the positive and
    the negative part, then give the mean. OpenMetrics forbids a count without a sum; in the older text format there is
    one, for readers that leave out the bucket of all values, as Datadog's check does.
    """
    name, text = metric.series, help_text(metric)
    family = MetricFamily(name, text, "histogram")
    parts = {part: MetricFamily(f"{name}_{part}", meaning.format(name), "counter") for part, meaning in SUMS.items()}
    for series in ordered:
        counted, own = snapshot.buckets[series], labels(snapshot, series)
        bounds = (*(floatToGoString(bound) for bound in counted.bounds), "+Inf")  # type: ignore[no-untyped-call]
        for bound, count in zip(bounds, accumulate(counted.counts), strict=True):
            family.add_sample(f"{name}_bucket", {**own, "le": bound}, count)
        if metric.signed:
            for part, total in parts.items():
                total.add_sample(f"{name}_{part}_total", own, getattr(counted, part))
        if counts or not metric.signed:
            family.add_sample(f"{name}_count", own, counted.count)
        if not metric.signed:
            family.add_sample(f"{name}_sum", own, counted.positive_sum)
    yield family
    if metric.signed:
        yield from parts.values()


def _restricted(all_families: Iterable[MetricFamily], names: frozenset[str]) -> Iterator[MetricFamily]:
    """Yield only the families, or single series of them, in ``names``."""
    for family in all_families:
        samples = family.samples if family.name in names else [s for s in family.samples if s.name in names]
        if samples:
            family.samples = samples
            yield family


def by_metric(snapshot: Snapshot) -> dict[Metric, list[Series]]:
    """Return all series of ``snapshot``, samples and histograms alike, by metric."""
    grouped: dict[Metric, list[Series]] = {}
    for series in (*snapshot.samples, *snapshot.buckets):
        grouped.setdefault(series.metric, []).append(series)
    return grouped


def labels(snapshot: Snapshot, series: Series) -> dict[str, str]:
    """Return the labels of the run, and those of ``series`` itself."""
    return {**snapshot.labels, **dict(zip(series.metric.labels, series.labels, strict=True))}


def help_text(metric: Metric) -> str:
    """Return the HELP text of ``metric``: its meaning, unit, level, and the TRL keys that feed it."""
    level = "" if metric.level in (Level.STEP, Level.RUN) else f"{metric.level.value} level"
    detail = ", ".join(part for part in (metric.unit, level) if part)
    named = metric.keys if metric.series != AS_IT_IS else ()
    keys = ", ".join(dict.fromkeys(key.name for key in named))
    return metric.help + (f" [{detail}]" if detail else "") + (f" TRL: {keys}" if keys else "")


class Backfill:
    """Timed snapshots of one run -> one OpenMetrics text, as `promtool tsdb create-blocks-from` reads it.

    The format wants each family in one piece and each series in the order of time, so all moments are kept, as plain
    numbers, until they are written. ``labels``: those that a scrape would have added, ``job`` and ``instance``.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._families: dict[str, MetricFamily] = {}
        self._series: dict[str, dict[_Labels, _Series]] = {}
        """By name of the family, the buckets of a histogram together: the format wants each moment in one piece."""
        self.newest: Snapshot | None = None
        self.last = 0.0
        self.moments = 0

    def add(self, snapshot: Snapshot, time: float) -> None:
        """Add what was served at ``time`` (seconds since the epoch), moved to after the moment before if need be."""
        self.newest = snapshot
        self.last = time = round(max(time, self.last + _RESOLUTION), 3)
        self.moments += 1
        for family in families(replace(snapshot, labels={**snapshot.labels, **self._labels})):
            family_series = self._series.setdefault(family.name, {})
            for sample in family.samples:
                labels = tuple(sample.labels.items())
                members = family_series.setdefault(tuple(label for label in labels if label[0] != "le"), {})
                times, values = members.setdefault((sample.name, labels), (array("d"), array("d")))
                times.append(time)
                values.append(sample.value)
            family.samples = []
            self._families.setdefault(family.name, family)

    def text(self) -> Iterator[bytes]:
        """Yield the text, family by family."""
        encoder, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
        for name, family in sorted(self._families.items()):
            for members in self._series[name].values():
                named = [(sample, dict(labels)) for sample, labels in members]
                points = (
                    (at, i, value)
                    for i, series in enumerate(members.values())
                    for at, value in zip(*series, strict=True)
                )
                for at, i, value in sorted(points):
                    family.add_sample(*named[i], value, at)
            yield encoder(_Families([family])).removesuffix(_END)
            family.samples = []
        yield _END
