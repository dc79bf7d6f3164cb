"""Main curves: a number that answers a question, over time, with its limits in force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlexporter.catalog.metrics import NAMED
from rlexporter.catalog.questions import QUESTIONS, Shown
from rlexporter.conditions.table import ShownSeries, sources
from rlexporter.model.metric import Kind, Metric
from scripts.pack.dashboards import limits
from scripts.pack.dashboards.families import SAMPLERS, SAMPLES
from scripts.pack.dashboards.frame import RUN, ZERO, Json
from scripts.pack.dashboards.linked import linked
from scripts.pack.dashboards.panels import (
    UNSEEN,
    Query,
    capital,
    described,
    gauge,
    mean,
    missing,
    on_the_right,
    timeseries,
    unit_of,
    words,
)

SHOWN = {shown.name: shown for question in QUESTIONS for shown in question.main}
"""The numbers that answer the questions, by their short names."""
LOG = {"gradient norm", "value loss"}
_LOG_OF = {"rl_policy_approxkl"}
ABSENT = {
    "KL": "no reference (beta is 0)",
    "ratio": f"nothing to see: each update is on fresh samples, where the ratio is 1; or {UNSEEN}",
    **dict.fromkeys((*SAMPLES, *(title for title, _ in SAMPLERS)), "not logged by this trainer"),
    "clipped": "nothing to see: each update is on fresh samples, where nothing is clipped",
}


_ALSO = {"ratio": ("rl_sequence_ratio_dist",), "KL": ("rl_kl_per_sequence",)}
"""Where runs have it that have no value at the level of the others: RLOO's ratio and PPO's KL are ones of sequences."""


def value(shown: Shown, *more: str) -> str:
    """Return an expression for the number in each run: the first of its series that the run has; ``more``: matchers."""
    return " or ".join(_read(each, *more) for each in _alike(shown))


def curve(name: str, *, title: str = "") -> Json:
    """Return the panel of the number ``name`` over time."""
    shown = SHOWN[name]
    metric = metric_of(shown)
    made = timeseries(
        title or capital(name),
        [Query(value(shown), name), *limits.lines(shown.signal, lambda function: _extreme(shown, function))],
        replace(metric, healthy=None),
        log=name in LOG,
        window=any(NAMED[each.series].kind is Kind.HISTOGRAM for each in _alike(shown)),
        absent=ABSENT.get(name) or missing(*(NAMED[each.series] for each in _alike(shown))),
        description=described_with_limits(metric),
        overrides=limits.look(),
    )
    return linked(name, made)


def lines(title: str, names: Sequence[str]) -> Json:
    """Return a panel with the lines of ``names``: of gauges, and of the means of histograms."""
    metrics = [NAMED[name] for name in names]
    texts = (f"{capital(words(each.series))}: {_usual(each)}" for each in metrics)
    units = [unit_of(each) for each in metrics]
    return timeseries(
        title,
        [_line(each) for each in metrics],
        replace(metrics[0], healthy=None),
        log=names[0] in _LOG_OF,
        window=any(each.kind is Kind.HISTOGRAM for each in metrics),
        absent=ABSENT.get(title) or missing(*metrics),
        description="\n\n".join(texts),
        overrides=[
            on_the_right(_line(each).legend, unit)
            for each, unit in zip(metrics, units, strict=True)
            if unit != units[0] == "none"
        ],
    )


def _line(metric: Metric) -> Query:
    if metric.kind is Kind.HISTOGRAM:
        return Query(mean(metric, ZERO), f"{words(metric.series)}, mean")
    return gauge(metric.series, *metric.labels)


def series_of(shown: Shown) -> list[str]:
    """Return the series at which a number is read, the best first."""
    return [each.series for each in _alike(shown)]


def described_with_limits(metric: Metric) -> str:
    """Return how to read a panel: what is shown, what it means, what is usual, and what its dashed lines are."""
    return f"{_usual(metric)} {limits.NOTE}"


def _usual(metric: Metric) -> str:
    usual = f" Usual in a healthy run: {metric.healthy.text}." if metric.healthy and metric.healthy.text else ""
    return described(metric) + usual


def metric_of(shown: Shown) -> Metric:
    """Return the metric whose unit and words a panel has."""
    return NAMED[sources(shown)[0].series]


def _alike(shown: Shown) -> Sequence[ShownSeries]:
    """Return the sources that mean the same as the first one."""
    first, *_ = found = sources(shown)
    alike = (
        each for each in found if each.limited is first.limited and NAMED[each.series].unit == metric_of(shown).unit
    )
    return [*alike, *(ShownSeries(name, limited=False) for name in _ALSO.get(shown.name, ()))]


def _read(source: ShownSeries, *more: str) -> str:
    metric, of = NAMED[source.series], ",".join((ZERO, *more))
    if metric.kind is Kind.HISTOGRAM:
        return mean(metric, of)
    return f"max by ({RUN}) ({metric.series}{{{of}}})"


def _extreme(shown: Shown, function: str) -> str:
    """Return an expression for the largest or smallest value in the time that is shown, worked out once."""
    return f"({' or '.join(_extremes(shown, function))})"


def _extremes(shown: Shown, function: str) -> Iterator[str]:
    for source in _alike(shown):
        metric = NAMED[source.series]
        if metric.kind is Kind.HISTOGRAM:
            yield f"{function}_over_time(({_read(source)})[$__range:$__rate_interval] @ end())"
        else:
            yield f"{function} by ({RUN}) ({function}_over_time({metric.series}{{{ZERO}}}[$__range] @ end()))"
