"""Timed snapshots of one run -> one OpenMetrics text, as `promtool tsdb create-blocks-from` reads it.

The format wants each family in one piece and each series in the order of time, so all moments are kept, as plain
numbers, until they are written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rlexporter.model.snapshot import Snapshot
from rlexporter.outputs import prometheus

_RESOLUTION = 0.001
"""Time resolution of Prometheus, in seconds."""

_Labels = tuple[tuple[str, str], ...]
_Points = tuple["array[float]", "array[float]"]
"""Times, and the value at each."""
_Series = dict[tuple[str, _Labels], _Points]


class Backfill:
    """The moments of one run. ``labels`` are the ones that a scrape would have added: ``job`` and ``instance``."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._families: dict[str, prometheus.MetricFamily] = {}
        self._series: dict[str, _Series] = {}
        self.newest: Snapshot | None = None
        self.last = 0.0
        self.moments = 0

    def add(self, snapshot: Snapshot, time: float) -> None:
        """Add what was served at ``time`` (seconds since the epoch), moved to after the moment before if need be."""
        self.newest = snapshot
        self.last = time = round(max(time, self.last + _RESOLUTION), 3)
        self.moments += 1
        for family in prometheus.families(replace(snapshot, labels={**snapshot.labels, **self._labels})):
            family_series = self._series.setdefault(family.name, {})
            for sample in family.samples:
                times, values = family_series.setdefault(
                    (sample.name, tuple(sample.labels.items())), (array("d"), array("d"))
                )
                times.append(time)
                values.append(sample.value)
            family.samples = []
            self._families.setdefault(family.name, family)

    def text(self) -> Iterator[bytes]:
        """Yield the text, family by family."""
        for name, family in sorted(self._families.items()):
            for members in _by_metric(self._series[name]):
                rows = (
                    (at, i, value)
                    for i, (_, _, points) in enumerate(members)
                    for at, value in zip(*points, strict=True)
                )
                for at, i, value in sorted(rows):
                    sample, labels, _ = members[i]
                    family.add_sample(sample, labels, value, at)
            yield prometheus.openmetrics(family)
            family.samples = []
        yield b"# EOF\n"


def _by_metric(family_series: _Series) -> Iterator[list[tuple[str, dict[str, str], _Points]]]:
    """Yield a family's series, the buckets of a histogram together: the format wants each moment in one piece."""
    groups: dict[_Labels, list[tuple[str, dict[str, str], _Points]]] = {}
    for (sample, labels), points in family_series.items():
        own = tuple(label for label in labels if label[0] != "le")
        groups.setdefault(own, []).append((sample, dict(labels), points))
    yield from groups.values()
