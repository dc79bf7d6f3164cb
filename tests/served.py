"""What an exporter serves now, for tests that ask again and again, and what a log leaves behind."""

from __future__ import annotations

from rlexporter import Exporter
from rlexporter.catalog.metrics import CATALOG
from rlexporter.feed.feed import Feed
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.logs.reader import Recording


def gauges(found: Recording) -> dict[str, float]:
    """The numbers that the lines of a log leave, by name and labels with slashes between them; no histograms."""
    feed = Feed(CATALOG, frameworks=FRAMEWORKS)
    feed.begin(found.facts, {})
    for event in found.events:
        if event.logs is not None:
            feed.record(event.logs, event.step)
    return {
        "/".join((series.metric.series, *series.labels)): value
        for series, value in feed.snapshot.samples.items()
        if isinstance(value, float)
    }


def errors(exporter: Exporter) -> float:
    """Errors of its own, wherever they came from."""
    return sum(v for s, v in exporter.snapshot.samples.items() if s.metric.series == "rlexporter_errors_total")


def nonfinite(exporter: Exporter) -> dict[str, float]:
    """Non-finite values counted so far, by metric; none left out."""
    found: dict[str, float] = {}
    for series, value in exporter.snapshot.samples.items():
        if series.metric.series == "rl_nonfinite_values_total" and value:
            found[series.labels[0]] = found.get(series.labels[0], 0) + value
    return found
