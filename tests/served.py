"""What an exporter serves now, for tests that ask again and again."""

from __future__ import annotations

from rlexporter import Exporter


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
