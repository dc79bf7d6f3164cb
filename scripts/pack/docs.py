"""Catalog -> docs/metrics.md: every series with its meaning, and every key with the series that it feeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.table import alerts_on
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.metric import AS_IT_IS, Framework, Group, Kind, Level, Metric
from scripts.pack.markdown import table
from scripts.pack.template import filled


def metrics(catalog: Sequence[Metric]) -> str:
    """Return the page."""
    return "\n".join((filled("metrics.md"), *_by_series(catalog), *_by_key(catalog), *_observed(catalog)))


def _by_series(catalog: Sequence[Metric]) -> Iterator[str]:
    yield "## By series\n"
    for group in Group:
        members = [metric for metric in catalog if metric.group is group]
        if members:
            yield f"### {group.value}\n"
            yield table(("Series", "Unit, level", "Healthy", "Log keys", "Meaning"), map(_series_row, members))


def _by_key(catalog: Sequence[Metric]) -> Iterator[str]:
    yield "## By log key\n"
    fed: dict[str, dict[str, list[str]]] = {algorithm: {} for algorithm in ALGORITHMS}
    for metric in catalog:
        for key in metric.keys if metric.series != AS_IT_IS else ():
            for algorithm in key.algorithms:
                fed[algorithm].setdefault(key.name, []).append(f"`{metric.series}{_labels(metric)}`")
    usual = fed["gkd"]  # it logs nothing but what transformers does
    like = [name for name, found in fed.items() if usual.items() <= found.items()]
    yield f"### Every Trainer of transformers: {', '.join(f'`{name}`' for name in like)}\n"
    yield table(("Log key", "Series"), map(_key_row, usual.items()))
    for algorithm, title in ALGORITHMS.items():
        own = {key: found for key, found in fed[algorithm].items() if algorithm not in like or key not in usual}
        if own:
            yield f"### {title}: `{algorithm}`\n"
            yield table(("Log key", "Series"), map(_key_row, own.items()))
    for framework in FRAMEWORKS.values():
        yield f"### {framework.title}\n"
        yield f"Read in {framework.source}.\n"
        yield table(("Log key", "Series"), map(_key_row, _fed_by(framework).items()))


def _fed_by(framework: Framework) -> dict[str, list[str]]:
    fed: dict[str, list[str]] = {}
    for key in (each for each in framework.keys if each.series != AS_IT_IS):
        only = f" ({', '.join(key.families)})" if key.families else ""
        fed.setdefault(key.name, []).append(f"`{key.series}{_labels(NAMED[key.series])}`{only}" if key.series else "-")
    return fed


def _key_row(fed: tuple[str, list[str]]) -> tuple[str, str]:
    key, series = fed
    return f"`{key}`", "<br>".join(series)


def _observed(catalog: Sequence[Metric]) -> Iterator[str]:
    yield "## Names for `observe`\n"
    yield (
        "`exporter.observe(NAME, values)` counts the values of a loop of your own in a histogram. A label is an "
        'argument: `exporter.observe("reward_function", values, reward_function="length")`.\n'
    )
    found = [metric for metric in catalog if metric.kind is Kind.HISTOGRAM]
    yield table(
        ("Name", "Series", "Unit"),
        ((f"`{each.short_name}`", f"`{each.series}{_labels(each)}`", each.unit or "-") for each in found),
    )


def _series_row(metric: Metric) -> tuple[str, ...]:
    keys = dict.fromkeys(key.name for key in metric.keys) if metric.series != AS_IT_IS else ()
    kind = "" if metric.kind is Kind.GAUGE else f"<br>*{metric.kind.value}*"
    level = "" if metric.level in (Level.STEP, Level.RUN) else f"{metric.level.value} level"
    return (
        f"`{metric.series}{_labels(metric)}`{kind}",
        ", ".join(part for part in (metric.unit, level) if part) or "-",
        f"{metric.healthy.text} ({metric.healthy.source})" if metric.healthy else "-",
        "<br>".join(f"`{name}`" for name in keys) or "-",
        metric.help + (f" **Reading:** {metric.reading}" if metric.reading else "") + _alerts(metric),
    )


def _alerts(metric: Metric) -> str:
    found = [f"[{alert}](../alerts/runbooks/{alert}.md)" for alert in alerts_on(metric)]
    return f" **Alerts:** {', '.join(found)}." if found else ""


def _labels(metric: Metric) -> str:
    return "{" + ",".join(metric.labels) + "}" if metric.labels else ""
