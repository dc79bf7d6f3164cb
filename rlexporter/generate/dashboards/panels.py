"""Panels, made from the metrics that they show: title, unit, description and healthy range are the catalogue's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards.frame import SOURCE, Json, select
from rlexporter.model import Kind, Metric, Range

_UNITS = {
    "seconds": "s",
    "fraction": "percentunit",
    "tokens per second": "short",
    "seconds since the epoch": "dateTimeFromNow",
    "bytes": "bytes",
}
_NOT_HERE = "not in this run"


@dataclass(frozen=True)
class Query:
    """One target of a panel. ``legend``: with `{{label}}` of what the expression keeps."""

    expr: str
    legend: str
    instant: bool = False
    table: bool = False
    heatmap: bool = False


def unit(metric: Metric) -> str:
    """Grafana's name of a unit; ``none`` is a plain number."""
    return _UNITS.get(metric.unit, "none")


def gauge(name: str, *by: str, legend: str = "") -> Query:
    """A gauge of rank 0 as it is; ``by``: the labels that tell its lines apart."""
    rank = () if NAMED.get(name) is None or "rank" in by else ('rank="0"',)
    kept = ", ".join(("run", *by))
    text = legend or " ".join("{{" + label + "}}" for label in by) or name
    return Query(f"max by ({kept}) ({name}{{{select(*rank)}}})", text)


def timeseries(title: str, queries: Sequence[Query], shown: Metric, **options: object) -> Json:
    """Lines over time. ``shown``: the metric whose unit, words and healthy range the panel has."""
    custom: Json = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 0,
        "showPoints": "auto",
        "spanNulls": False,
        "axisPlacement": "auto",
        "scaleDistribution": {"type": "log", "log": 10} if options.get("log") else {"type": "linear"},
        "thresholdsStyle": {"mode": "area" if shown.healthy else "off"},
    }
    defaults = {"unit": options.get("unit") or unit(shown), "custom": custom, "noValue": _NOT_HERE}
    defaults["thresholds"] = thresholds(shown.healthy)
    return {
        **_panel("timeseries", title, described(shown), queries),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def heatmap(title: str, metric: Metric, *, total_by: str = "le") -> Json:
    """A distribution over time. A column is as wide as the window, so that each holds a step and none counts twice."""
    expr = f"sum by ({total_by}) (increase({metric.series}_bucket{{{select()}}}[$__interval]))"
    panel = _panel("heatmap", title, described(metric), [Query(expr, "{{le}}", heatmap=True)])
    panel["interval"] = "${window}s"
    panel["maxDataPoints"] = 200
    panel["fieldConfig"] = {"defaults": {"custom": {"scaleDistribution": {"type": "linear"}}}, "overrides": []}
    panel["options"] = {
        "calculate": False,
        "cellGap": 0,
        "cellValues": {"unit": "short"},
        "color": {
            "mode": "scheme",
            "scheme": "Spectral",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
            "fill": "dark-orange",
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit(metric)},
    }
    return panel


def stat(title: str, query: Query, description: str, *, unit: str = "none", mappings: Sequence[Json] = ()) -> Json:
    """One number, or a word."""
    panel = _panel("stat", title, description, [query])
    panel["fieldConfig"] = {
        "defaults": {"unit": unit, "noValue": "-", "mappings": list(mappings), "thresholds": thresholds(None)},
        "overrides": [],
    }
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
    }
    return panel


def table(title: str, queries: Sequence[Query], description: str, overrides: Sequence[Json] = ()) -> Json:
    """Instant values, merged by the labels that they share."""
    panel = _panel("table", title, description, queries)
    panel["fieldConfig"] = {
        "defaults": {"custom": {"align": "auto", "cellOptions": {"type": "auto"}}, "noValue": "none"},
        "overrides": list(overrides),
    }
    panel["options"] = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "fields": ""},
    }
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": {}}},
    ]
    return panel


def thresholds(healthy: Range | None) -> Json:
    """Red outside the healthy range, nothing inside."""
    steps: list[Json] = [{"color": "transparent", "value": None}]
    if healthy is not None:
        if healthy.low is not None:
            steps = [{"color": "red", "value": None}, {"color": "transparent", "value": healthy.low}]
        if healthy.high is not None:
            steps.append({"color": "red", "value": healthy.high})
    return {"mode": "absolute", "steps": steps}


def without_range(name: str) -> Metric:
    """A metric for a panel that shows something else of it than its value."""
    return replace(NAMED[name], healthy=None)


def described(metric: Metric) -> str:
    """What a panel says of a metric, in the catalogue's words."""
    return f"{metric.help} {metric.reading}".strip()


def _panel(kind: str, title: str, description: str, queries: Sequence[Query]) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": [_target(chr(ord("A") + i), query) for i, query in enumerate(queries)],
        "links": [],
    }


def _target(ref: str, query: Query) -> Json:
    made: Json = {
        "refId": ref,
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "editorMode": "code",
        "range": not query.instant,
        "instant": query.instant,
    }
    if query.table:
        made["format"] = "table"
    if query.heatmap:
        made["format"] = "heatmap"
    return made


def is_drawn(metric: Metric) -> bool:
    """Whether it is a number that a line can show."""
    return metric.kind is Kind.GAUGE
