"""Catalogue -> alerts/runbooks: a page per alert, and an index with every condition and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlexporter.catalog import CONDITIONS, IMPACT, NAMED, PROMETHEUS_ALERTS, WATCHDOG
from rlexporter.catalog.languages import CODES, Language, language
from rlexporter.conditions.from_catalog import SIGNAL_NAMED, series_of
from rlexporter.generate import promql
from rlexporter.generate.markdown import table
from rlexporter.generate.template import filled
from rlexporter.model.condition import Baseline, Condition, Limit, PrometheusAlert
from rlexporter.model.metric import Kind


def pages(jobs: str = promql.JOBS) -> dict[str, str]:
    """Return every runbook, by file name; ``jobs`` as in `rlexporter.generate.promql.expand`."""
    grouped: dict[str, list[Condition]] = {}
    for condition in CONDITIONS:
        grouped.setdefault(condition.alert, []).append(condition)
    return {
        "README.md": _index(),
        **{f"{alert}.md": "\n".join(map(_page, members)) for alert, members in grouped.items()},
        **{f"{each.alert}.md": _outside(each, jobs) for each in PROMETHEUS_ALERTS},
        f"{WATCHDOG}.md": filled("watchdog.md", watchdog=WATCHDOG),
    }


MEANING, CAUSES, REMEDIES = HEADINGS = ("Meaning", "Causes", "What to try")
"""The headings that each language has."""


def _page(condition: Condition) -> str:
    signal = SIGNAL_NAMED[condition.signal]
    page = _sections(
        condition.alert,
        condition.summary,
        {
            MEANING: condition.meaning + "\n\n" + _limits(condition, signal.unit),
            "Impact": IMPACT[condition.family],
            "Diagnosis": _diagnosis(condition),
            CAUSES: _bullets(condition.causes),
            REMEDIES: _bullets(condition.remedies),
            "Threshold": _threshold(condition),
            "Source of the limit": condition.source + ".\n\n" + filled("sources.md").rstrip(),
        },
    )
    return page + "".join(_in(language(code), condition) for code in CODES[1:])


def _in(say: Language, condition: Condition) -> str:
    """Return what a condition means and what to try, in another language."""
    sections = {
        MEANING: say(condition.meaning),
        CAUSES: _bullets([say(text) for text in condition.causes]),
        REMEDIES: _bullets([say(text) for text in condition.remedies]),
    }
    body = "".join(f"\n### {say(name)}\n\n{text}\n" for name, text in sections.items())
    return f"\n## {say.name}\n\n{say(condition.summary)}\n{body}"


def _outside(each: PrometheusAlert, jobs: str) -> str:
    return _sections(
        each.alert,
        each.summary,
        {
            MEANING: f"{each.meaning}\n\nSeverity: {each.severity.value}. Seen from outside the process.",
            "Impact": IMPACT[each.family],
            "Diagnosis": f"```promql\n{promql.expand(each.expr, jobs)}\n```",
            CAUSES: _bullets(each.causes),
            REMEDIES: _bullets(each.remedies),
            "Source of the limit": each.source + ".",
        },
    )


def _sections(title: str, summary: str, sections: Mapping[str, str]) -> str:
    body = "\n".join(f"## {name}\n\n{text}\n" for name, text in sections.items() if text)
    return filled("runbook.md", title=title, summary=summary, sections=body.rstrip())


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"* {text}" for text in texts)


def _limits(condition: Condition, unit: str) -> str:
    rows = [(limit.severity.value, limit_text(condition, limit, unit), hold_text(limit)) for limit in condition.limits]
    return table(("Severity", f"{'Below' if condition.below else 'Above'}", "How often"), rows).rstrip()


def limit_text(condition: Condition, limit: Limit, unit: str) -> str:
    """Return a limit as text: ``3 nats per token (k3)``, ``0.45 times ...``."""
    by_variant = limit.value if isinstance(limit.value, Mapping) else {"": limit.value}
    number = ", ".join(f"{value:g}" + (f" ({variant})" if variant else "") for variant, value in by_variant.items())
    if condition.baseline is Baseline.FIXED:
        return f"{number} {unit}".rstrip()
    return f"{number} {condition.baseline.value}"


def hold_text(limit: Limit) -> str:
    """Return the observations that ``limit`` needs as text: ``3 of 5``."""
    enough, of = limit.k_of_n
    if of == 1:
        return "once"
    return f"{enough} in a row" if enough == of else f"{enough} of {of}"


def _diagnosis(condition: Condition) -> str:
    """Return the queries: the condition itself, the signal that it is judged by, and signals to compare with."""
    read = series_of(condition.signal)
    queries = [
        f'rl_condition{{condition="{condition.name}",run="$run"}}',
        f'rl_threshold{{condition="{condition.name}",run="$run"}}',
        *(_query(name) for name in dict.fromkeys((*read, *condition.related))),
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


def _threshold(condition: Condition) -> str:
    return (
        f'`thresholds={{"{condition.name}": ...}}` (argument), `RLEXPORTER_THRESHOLDS={condition.name}=...`, or a '
        f"TOML file; `False` or `off` turns it off. The limit in force is "
        f'`rl_threshold{{condition="{condition.name}"}}`.'
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
    outside = [(f"[{each.alert}]({each.alert}.md)", each.severity.value, each.summary) for each in PROMETHEUS_ALERTS]
    watchdog = (f"[{WATCHDOG}]({WATCHDOG}.md)", "none", "Alerting works.")
    return filled(
        "runbooks.md",
        conditions=table(("Alert", "Condition", "Holds", "Algorithms", "Summary"), rows),
        outside=table(("Alert", "Severity", "Summary"), [*outside, watchdog]),
        sources=filled("sources.md").rstrip(),
    )
