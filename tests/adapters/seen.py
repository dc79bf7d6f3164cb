"""What an exporter has seen of a training so far, for tests that look at its snapshot."""

from __future__ import annotations

from typing import Any

from rlexporter import Exporter


def labelled(exporter: Exporter, series: str) -> dict[str, float]:
    """The values of a series by the first of its labels."""
    return {each.labels[0]: v for each, v in exporter.snapshot.samples.items() if each.metric.series == series}


def signals(exporter: Exporter) -> dict[str, float]:
    """1 for each signal that is available, and 0 for the others."""
    return labelled(exporter, "rl_signal_available")


def lost(exporter: Exporter) -> set[str]:
    """The signals that are not available."""
    return {name for name, available in signals(exporter).items() if not available}


def reasons(exporter: Exporter) -> dict[str, str]:
    """Why each signal is lost that is lost."""
    return {**exporter.snapshot.reasons}


def histogram(exporter: Exporter, series: str) -> Any:
    """The histogram of this name."""
    return next(found for each, found in exporter.snapshot.buckets.items() if each.metric.series == series)


def incidents(exporter: Exporter) -> list[dict[str, str]]:
    """The labels of each incident that is served."""
    return [
        dict(zip(each.metric.labels, each.labels, strict=True))
        for each in exporter.snapshot.samples
        if each.metric.series == "rl_incident"
    ]


def state(exporter: Exporter) -> str:
    """The state of the run, in the word that is served."""
    (current,) = (name for name, value in labelled(exporter, "rl_run_state").items() if value == 1)
    return current


def phases(exporter: Exporter) -> set[str]:
    """The phases that the run is in now."""
    return {name for name, value in labelled(exporter, "rl_phase").items() if value}
