"""Panels, made from the metrics that they show: unit, description and healthy range are the catalog's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Kind, Metric
from scripts.pack.dashboards.frame import RUN, SOURCE, ZERO, Json, select, skeleton

UNITS = {"seconds": "s", "fraction": "percentunit", "bytes": "bytes", "tokens": "short"}
WINDOW, APART = "${window}s", "${apart}s"
"""The width of a column of a heatmap, and the time between two points of a line that rates."""
Step = tuple[str, float | None]
"""A color, and the value from which it is shown."""


@dataclass(frozen=True)
class Query:
    """A target of a panel. ``legend`` may use, as `{{label}}`, the labels that the expression keeps."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: str = ""
    """Format: ``table``, ``heatmap``, or empty for lines."""
    window: bool = False
    """True if its rates look back as far as a column of a heatmap, and so over a step."""


UNSEEN = "nothing looks at the tensors"
"""Why a run may have no distributions: it is a log, or its trainer is none of TRL's."""
_NAMED = 5
"""The most algorithms that the text of an empty panel names."""
_SOURCE_NAME = re.compile(r" \[\w+\]")


def unit_of(metric: Metric) -> str:
    """Return Grafana's name of the metric's unit; ``none`` is a plain number."""
    return UNITS.get(metric.unit, "none")


def gauge(name: str, *by: str, legend: str = "") -> Query:
    """Return a query of a gauge of rank 0; the labels ``by`` tell its lines apart."""
    text = legend or " ".join("{{" + label + "}}" for label in by) or words(name)
    return Query(f"max by ({', '.join((RUN, *by))}) ({name}{{{ZERO}}})", text)


def rate(name: str, legend: str) -> Query:
    """Return a query of the growth of a counter of rank 0, per second."""
    return Query(f"sum by ({RUN}) (rate({name}{{{ZERO}}}[$__rate_interval]))", legend)


def grown(name: str, of: str) -> str:
    """Return an expression for the growth of a counter that is absent at 0, with the matchers ``of``.

    `increase` cannot see a counter that is born at 1: where there was none a window ago, all of it is new.
    """
    window = "$__rate_interval"
    return f"(({name}{{{of}}} unless {name}{{{of}}} offset {window}) or increase({name}{{{of}}}[{window}]))"


def mean(metric: Metric, of: str, *by: str) -> str:
    """Return an expression for the mean of a histogram, over the series with the matchers ``of``."""
    kept = ", ".join((RUN, *by))

    def rated(part: str, *more: str) -> str:
        return f"sum by ({kept}) (rate({metric.series}_{part}{{{','.join((of, *more))}}}[$__rate_interval]))"

    count = rated("bucket", 'le="+Inf"')
    total = f"({rated('positive_sum_total')} - {rated('negative_sum_total')})" if metric.signed else rated("sum")
    return f"{total} / ({count} > 0)"


def quantile(metric: Metric, part: float, of: str) -> str:
    """Return an expression for the quantile ``part`` of a histogram, over the series with the matchers ``of``."""
    return f"histogram_quantile({part:g}, sum by ({RUN}, le) (rate({metric.series}_bucket{{{of}}}[$__rate_interval])))"


def words(name: str) -> str:
    """Return the name of a series as plain words."""
    bare = name.removeprefix("rl_").removeprefix("rlexporter_").removesuffix("_total").removesuffix("_dist")
    return " ".join({"kl": "KL", "nan": "NaN"}.get(word, word) for word in bare.split("_"))


def capital(text: str) -> str:
    """Return ``text`` with a capital first letter."""
    return text[:1].upper() + text[1:]


def timeseries(
    title: str,
    queries: Sequence[Query],
    shown: Metric,
    *,
    unit: str = "",
    log: bool = False,
    stack: bool = False,
    window: bool = False,
    absent: str = "",
    description: str = "",
    overrides: Iterable[Json] = (),
) -> Json:
    """Return a panel of lines over time, with the unit and the words of the metric ``shown``.

    With ``window`` rates look back as far as a column of a heatmap, so that they cover a step. ``absent`` is the text
    of an empty panel.
    """
    if window:
        queries = [replace(query, window="$__rate_interval" in query.expr) for query in queries]
    made = panel("timeseries", title, description or described(shown), queries)
    defaults = {
        "unit": unit or unit_of(shown),
        "custom": _lines(shown, log, stack),
        "noValue": empty(absent or missing(shown)),
    }
    made["fieldConfig"] = {"defaults": defaults, "overrides": list(overrides)}
    made["options"] = {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "min", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return made


def heatmap(title: str, metric: Metric, *more: str, absent: str = "") -> Json:
    """Return a panel of a distribution over time; columns as wide as the window hold a step, and none counts twice."""
    expr = f"sum by (le) (increase({metric.series}_bucket{{{select(*more)}}}[$__interval]))"
    queries = [Query(expr, "{{le}}", format="heatmap")]
    made = {**panel("heatmap", title, described(metric), queries), **skeleton("heatmap"), "interval": WINDOW}
    made["fieldConfig"]["defaults"]["noValue"] = empty(absent or missing(metric))
    made["options"]["yAxis"]["unit"] = unit_of(metric)
    return made


def limits(*steps: Step) -> Json:
    """Return thresholds with the colors of ``steps``, each from its value on."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]}


def override(name: str, **properties: object) -> Json:
    """Return an override of properties for the field ``name``; ``custom__x`` stands for `custom.x`."""
    found = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": found}


def on_the_right(name: str, unit: str, label: str = "") -> Json:
    """Return an override that puts the line ``name`` on the other axis: it is of another size. ``label``: the axis'."""
    return override(name, unit=unit, custom__axisPlacement="right", custom__axisLabel=label)


def without_range(name: str) -> Metric:
    """Return a metric without healthy range, for a panel that does not show its plain value."""
    return replace(NAMED[name], healthy=None)


def described(metric: Metric) -> str:
    """Return the description of a metric's panel, in the catalog's words, without its references to sources."""
    return _SOURCE_NAME.sub("", f"{metric.help} {metric.reading}").strip()


def empty(reason: str) -> str:
    """Return the text of an empty panel: first that nothing may have been scraped at all, then a possible reason."""
    return f"No data in this range; or {reason}"


def missing(*metrics: Metric) -> str:
    """Return why a run may have none of ``metrics``."""
    logged = dict.fromkeys(each for metric in metrics for key in metric.keys for each in key.algorithms)
    if all(metric.kind is Kind.HISTOGRAM and not metric.of for metric in metrics):
        return f'{UNSEEN}; or see "Signals that this run does not have"'
    if not logged:
        return "not in this run"
    return f"not in this run: it is logged by {', '.join([*logged][:_NAMED])}{' and others' * (len(logged) > _NAMED)}"


def _lines(shown: Metric, log: bool, stack: bool) -> Json:
    from_zero = shown.unit == "fraction" or (shown.healthy is not None and shown.healthy.low == 0)
    return {
        **({"axisSoftMin": 0} if from_zero and not log else {}),
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if stack else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "axisPlacement": "auto",
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
    }


def panel(kind: str, title: str, description: str, queries: Sequence[Query]) -> Json:
    """Return a panel with the parts that every panel has."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": [_target(letter(i), query) for i, query in enumerate(queries)],
        "links": [],
    }


def letter(index: int) -> str:
    """Return the name of the target ``index``: A, B, ... Z, AA, AB."""
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("A") + index % 26)


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
    if query.window:
        made["interval"] = APART
    return {**made, "format": query.format} if query.format else made
