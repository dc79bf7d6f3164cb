"""Panels for all metrics that no other panel shows: a new one in the catalogue is drawn without an edit here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rlexporter.generate.dashboards.frame import ZERO, Json, Page, select
from rlexporter.generate.dashboards.panels import Query, gauge, heatmap, timeseries, unit_of
from rlexporter.model.metric import Group, Kind, Metric

_MOST_LINES = 8
_CLOCK = "seconds since the epoch"
_DRAWN = (Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM)


def rest(page: Page, catalog: Sequence[Metric]) -> None:
    """Add panels for all metrics that no panel of ``page`` shows, by group and unit."""
    shown = set(re.findall(r"\brl_\w+", " ".join(_expressions(page))))
    names = {metric.series: {metric.series, f"{metric.series}_bucket", f"{metric.series}_count"} for metric in catalog}
    left = [
        metric
        for metric in catalog
        if metric.kind in _DRAWN and metric.group is not Group.EXPORTER and not names[metric.series] & shown
    ]
    page.row("Everything else", collapsed=True)
    for group in Group:
        members = sorted((metric for metric in left if metric.group is group), key=_place)
        for (kind, unit), found in groupby(members, key=_place):
            metrics = list(found)
            if kind == Kind.HISTOGRAM.value:
                for metric in metrics:
                    page.add(heatmap(metric.series, metric))
                continue
            for part in range(0, len(metrics), _MOST_LINES):
                page.add(_lines(group, kind, unit, metrics[part : part + _MOST_LINES]))


def _expressions(page: Page) -> Iterator[str]:
    for panel in page.all():
        for target in panel.get("targets", ()):
            yield target["expr"]


def _place(metric: Metric) -> tuple[str, str]:
    if metric.kind is Kind.COUNTER:
        return metric.kind.value, "per second"
    return metric.kind.value, "s" if metric.unit == _CLOCK else unit_of(metric)


def _lines(group: Group, kind: str, unit: str, metrics: Sequence[Metric]) -> Json:
    counters = kind == Kind.COUNTER.value
    shown = replace(
        metrics[0], healthy=None, reading="", keys=(), help="Metrics of this group that no panel above shows."
    )
    title = f"{group.value.partition(':')[0]}, per second" if counters else group.value.partition(":")[0]
    queries = [_line(metric) for metric in metrics]
    return timeseries(title, queries, shown, unit="short" if counters else unit, window=counters)


def _line(metric: Metric) -> Query:
    """Return the query of ``metric``: the rate of a counter, the age of a time, the value of any other gauge."""
    by = ("run", *metric.labels)
    legend = " ".join((metric.series, *("{{" + label + "}}" for label in metric.labels)))
    if metric.kind is Kind.COUNTER:
        return Query(f"sum by ({', '.join(by)}) (rate({metric.series}{{{select()}}}[$__rate_interval]))", legend)
    if metric.unit == _CLOCK:
        return Query(f"time() - max by ({', '.join(by)}) ({metric.series}{{{ZERO}}})", f"since {legend}")
    return gauge(metric.series, *metric.labels, legend=legend)
