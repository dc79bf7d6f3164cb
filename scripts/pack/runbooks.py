"""Catalog -> alerts/runbooks: a page per alert, and an index with every condition and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlexporter.catalog.alerts import PrometheusAlert
from rlexporter.catalog.languages import CODES, Language, language
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.table import BY_ALERT, CONDITIONS, SIGNAL_NAMED, series_of
from rlexporter.conditions.words import words
from rlexporter.model.condition import Condition, Limit
from rlexporter.model.metric import Kind
from scripts.pack import promql
from scripts.pack.markdown import table
from scripts.pack.outside import IMPACT, PROMETHEUS_ALERTS, WATCHDOG
from scripts.pack.template import filled


def pages() -> dict[str, str]:
    """Return every runbook, by file name."""
    return {
        "README.md": _index(),
        **{f"{alert}.md": _page(alert, conditions) for alert, conditions in BY_ALERT.items()},
        **{f"{alert.alert}.md": _outside(alert) for alert in PROMETHEUS_ALERTS},
        f"{WATCHDOG}.md": filled("watchdog.md", watchdog=WATCHDOG),
    }


MEANING, CAUSES, REMEDIES = "Meaning", "Causes", "What to try"


def _page(alert: str, conditions: Sequence[Condition]) -> str:
    """Return the page of an alert: what its conditions have in common, then each of them."""
    one = conditions[0] if len(conditions) == 1 else None
    sections = {
        MEANING: _meaning(one) if one else "",
        "Impact": _grouped(conditions, lambda condition: IMPACT[condition.family]),
        "Diagnosis": _diagnosis(conditions),
        CAUSES: _bullets(_shared([words()[condition.name].causes for condition in conditions])),
        REMEDIES: _bullets(_shared([condition.remedies for condition in conditions])),
        **({} if one else {f"`{condition.name}`": _section(condition, conditions) for condition in conditions}),
        "Threshold": _threshold(conditions),
        "Source of the limit": _grouped(conditions, lambda condition: f"{words()[condition.name].source}.")
        + f"\n\n{filled('sources.md').rstrip()}",
    }
    page = filled(
        "runbook.md",
        title=alert,
        summary=one.summary if one else _listed(conditions),
        sections=_headed(sections, "##"),
    )
    return page + "".join(_in(language(code), conditions) for code in CODES[1:])


def _section(condition: Condition, conditions: Sequence[Condition]) -> str:
    """Return the section of one of several ``conditions``, without what is common to all."""
    causes = _shared([words()[other.name].causes for other in conditions])
    own = {
        CAUSES: _bullets([text for text in words()[condition.name].causes if text not in causes]),
        REMEDIES: _bullets(_own_remedies(condition, conditions)),
    }
    return "\n\n".join(filter(None, (_meaning(condition), _headed(own, "###"))))


def _in(say: Language, conditions: Sequence[Condition]) -> str:
    """Return what has happened and what to try, in another language; the rest of the page is English only."""
    shared = _bullets([say(text) for text in _shared([condition.remedies for condition in conditions])])
    if len(conditions) == 1:
        return f"\n## {say.name}\n\n{say(conditions[0].summary)}\n\n### {say(REMEDIES)}\n\n{shared}\n"
    sections = {say(REMEDIES): shared}
    for condition in conditions:
        own = _bullets([say(text) for text in _own_remedies(condition, conditions)])
        sections[f"`{condition.name}`"] = "\n\n".join(filter(None, (say(condition.summary), own)))
    return f"\n## {say.name}\n\n{_headed(sections, '###')}\n"


def _shared(texts_of_each: Sequence[Sequence[str]]) -> list[str]:
    """Return the texts that all conditions have: every one where there is only one condition."""
    first, *others = texts_of_each
    return [text for text in first if all(text in texts for texts in others)]


def _own_remedies(condition: Condition, conditions: Sequence[Condition]) -> list[str]:
    shared = _shared([other.remedies for other in conditions])
    return [text for text in condition.remedies if text not in shared]


def _listed(conditions: Sequence[Condition]) -> str:
    lines = (f"* [`{condition.name}`](#{condition.name}): {condition.summary}" for condition in conditions)
    return "The label `condition` says which of these it is:\n\n" + "\n".join(lines)


def _meaning(condition: Condition) -> str:
    return f"{words()[condition.name].meaning}\n\n{_limits(condition, SIGNAL_NAMED[condition.signal].unit)}"


def _grouped(conditions: Sequence[Condition], text_of: Callable[[Condition], str]) -> str:
    """Return the text of conditions, each one once; where they differ, with the names of its conditions."""
    named: dict[str, list[str]] = {}
    for condition in conditions:
        named.setdefault(text_of(condition), []).append(f"`{condition.name}`")
    if len(named) == 1:
        return text_of(conditions[0])
    return _bullets([f"{', '.join(names)}: {text}" for text, names in named.items()])


def _outside(alert: PrometheusAlert) -> str:
    severity = f"{alert.severity.value}{', or that of what it stands for' if alert.milder else ''}"
    sections = {
        MEANING: f"{alert.meaning}\n\nSeverity: {severity}. Seen from outside the process.",
        "Impact": IMPACT[alert.family],
        "Diagnosis": f"```promql\n{promql.expand(alert.expr)}\n```",
        CAUSES: _bullets(alert.causes),
        REMEDIES: _bullets(alert.remedies),
        "Source of the limit": alert.source + ".",
    }
    return filled("runbook.md", title=alert.alert, summary=alert.summary, sections=_headed(sections, "##"))


def _headed(sections: Mapping[str, str], level: str) -> str:
    return "\n\n".join(f"{level} {name}\n\n{text}" for name, text in sections.items() if text)


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"* {text}" for text in texts)


def _limits(condition: Condition, unit: str) -> str:
    rows = [(limit.severity.value, limit_text(condition, limit, unit), hold_text(limit)) for limit in condition.limits]
    return table(("Severity", f"{'Below' if condition.below else 'Above'}", "How often"), rows).rstrip()


def limit_text(condition: Condition, limit: Limit, unit: str) -> str:
    """Return a limit as text: ``3 nats per token (k3)``, ``0.45 times ...``."""
    if limit.value is None:
        return "found"
    by_variant = limit.value if isinstance(limit.value, Mapping) else {"": limit.value}
    number = ", ".join(f"{value:g}" + (f" ({variant})" if variant else "") for variant, value in by_variant.items())
    return f"{number} {condition.detector.words if condition.detector.relative else unit}".rstrip()


def hold_text(limit: Limit) -> str:
    """Return the observations that ``limit`` needs as text: ``3 of 5``."""
    enough, of = limit.lasts.value
    if of == 1:
        return "once"
    return f"{enough} in a row" if enough == of else f"{enough} of {of}"


_MOST_SOURCES = 12


def _diagnosis(conditions: Sequence[Condition]) -> str:
    """Return the queries: the conditions, the signals that they are judged by, and signals to compare with.

    NaN is looked for in more series than a person would query: those to compare with show it.
    """
    of = promql.named(conditions)
    sources = [series_of(condition.signal) for condition in conditions]
    read = [name for series in sources for name in series if len(series) <= _MOST_SOURCES]
    related = [name for condition in conditions for name in condition.related]
    queries = [
        f'rl_condition{{{of},run="$run"}}',
        f'rl_threshold{{{of},run="$run"}}',
        *(_query(name) for name in dict.fromkeys((*read, *related))),
    ]
    return (
        "Put the name of the run for `$run`. Not every trainer has all of these.\n\n```promql\n"
        + "\n".join(queries)
        + "\n```"
    )


def _query(name: str) -> str:
    metric = NAMED[name]
    if metric.kind is Kind.HISTOGRAM:
        return f'histogram_quantile(0.5, sum by (le) (increase({name}_bucket{{run="$run"}}[15m])))'
    if metric.kind is Kind.COUNTER:
        return f'sum without ({promql.LOST}) ({name}{{run="$run"}}) > 0'
    return f'{name}{{run="$run"}}'


def _threshold(conditions: Sequence[Condition]) -> str:
    name = conditions[0].name if len(conditions) == 1 else "NAME"
    return (
        f'`thresholds={{"{name}": ...}}` (argument), `RLEXPORTER_THRESHOLDS={name}=...`, or a '
        f"TOML file; `False` or `off` turns it off. The limit in force is "
        f'`rl_threshold{{condition="{name}"}}`.' + ("" if len(conditions) == 1 else " NAME is that of the condition.")
    )


def _index() -> str:
    rows = [
        (
            f"[{condition.alert}]({condition.alert}.md)",
            f"`{condition.name}`",
            "<br>".join(
                f"{limit.severity.value}: {'below' if condition.below else 'above'} "
                f"{limit_text(condition, limit, SIGNAL_NAMED[condition.signal].unit)}, {hold_text(limit)}"
                for limit in condition.limits
            ),
            ", ".join(condition.algorithms) or "all",
            condition.summary,
        )
        for condition in CONDITIONS
    ]
    outside = [
        (f"[{alert.alert}]({alert.alert}.md)", alert.severity.value, alert.summary) for alert in PROMETHEUS_ALERTS
    ]
    watchdog = (f"[{WATCHDOG}]({WATCHDOG}.md)", "none", "Alerting works.")
    return filled(
        "runbooks.md",
        conditions=table(("Alert", "Condition", "Holds", "Algorithms", "Summary"), rows),
        outside=table(("Alert", "Severity", "Summary"), [*outside, watchdog]),
        sources=filled("sources.md").rstrip(),
    )
