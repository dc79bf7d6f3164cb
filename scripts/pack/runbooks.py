"""Catalogue -> alerts/runbooks: a page per alert, and an index with every condition and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlexporter.catalog import BY_ALERT, CONDITIONS, NAMED
from rlexporter.catalog.languages import CODES, ENGLISH, Language, language
from rlexporter.conditions.from_catalog import SIGNAL_NAMED, series_of
from rlexporter.model.condition import Baseline, Condition, Limit, PrometheusAlert
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
        **{f"{each.alert}.md": _outside(each) for each in PROMETHEUS_ALERTS},
        f"{WATCHDOG}.md": filled("watchdog.md", watchdog=WATCHDOG),
    }


MEANING, CAUSES, REMEDIES = HEADINGS = ("Meaning", "Causes", "What to try")
"""The headings that each language has."""


def _page(alert: str, conditions: Sequence[Condition]) -> str:
    """Return the page of an alert: what its conditions have in common, then each of them."""
    one = conditions[0] if len(conditions) == 1 else None
    common = _common(conditions, ENGLISH)
    sections = {
        MEANING: _meaning(one, ENGLISH) if one else "",
        "Impact": _grouped(conditions, lambda each: IMPACT[each.family]),
        "Diagnosis": _diagnosis(conditions),
        **common,
        **({} if one else _each(conditions, common, ENGLISH, "###")),
        "Threshold": _threshold(conditions),
        "Source of the limit": _grouped(conditions, lambda each: f"{each.source}.")
        + f"\n\n{filled('sources.md').rstrip()}",
    }
    page = filled(
        "runbook.md",
        title=alert,
        summary=one.summary if one else _listed(conditions),
        sections=_headed(sections, "##"),
    )
    return page + "".join(_in(language(code), conditions) for code in CODES[1:])


def _in(say: Language, conditions: Sequence[Condition]) -> str:
    """Return what conditions mean and what to try, in another language."""
    common = _common(conditions, say)
    if len(conditions) == 1:
        sections = {say(MEANING): _meaning(conditions[0], say), **common}
        summary = f"{say(conditions[0].summary)}\n\n"
    else:
        sections, summary = {**common, **_each(conditions, common, say, "####")}, ""
    return f"\n## {say.name}\n\n{summary}{_headed(sections, '###')}\n"


def _parts(condition: Condition, say: Language) -> dict[str, list[str]]:
    return {
        say(CAUSES): [say(text) for text in condition.causes],
        say(REMEDIES): [say(text) for text in condition.remedies],
    }


def _common(conditions: Sequence[Condition], say: Language) -> dict[str, str]:
    """Return the causes and remedies that all of them have: every one where there is only one condition."""
    first, *others = [_parts(each, say) for each in conditions]
    return {
        name: _bullets([text for text in texts if all(text in other[name] for other in others)])
        for name, texts in first.items()
    }


def _each(conditions: Sequence[Condition], common: Mapping[str, str], say: Language, level: str) -> dict[str, str]:
    """Return the section of each condition, without what is ``common``; its summary stands in the list above."""
    found = {}
    for each in conditions:
        parts = _parts(each, say).items()
        own = {
            name: _bullets([text for text in texts if f"* {text}" not in common[name].splitlines()])
            for name, texts in parts
        }
        found[f"`{each.name}`"] = "\n\n".join(
            filter(None, ("" if say is ENGLISH else say(each.summary), _meaning(each, say), _headed(own, level)))
        )
    return found


def _listed(conditions: Sequence[Condition]) -> str:
    lines = (f"* [`{each.name}`](#{each.name}): {each.summary}" for each in conditions)
    return "The label `condition` says which of these it is:\n\n" + "\n".join(lines)


def _meaning(condition: Condition, say: Language) -> str:
    limits = f"\n\n{_limits(condition, SIGNAL_NAMED[condition.signal].unit)}" if say is ENGLISH else ""
    return say(condition.meaning) + limits


def _grouped(conditions: Sequence[Condition], text_of: Callable[[Condition], str]) -> str:
    """Return the texts of conditions, each once with the names of those that it is of, where they differ."""
    named: dict[str, list[str]] = {}
    for each in conditions:
        named.setdefault(text_of(each), []).append(f"`{each.name}`")
    if len(named) == 1:
        return text_of(conditions[0])
    return _bullets([f"{', '.join(names)}: {text}" for text, names in named.items()])


def _outside(each: PrometheusAlert) -> str:
    severity = f"{each.severity.value}{', or that of what it stands for' if each.milder else ''}"
    sections = {
        MEANING: f"{each.meaning}\n\nSeverity: {severity}. Seen from outside the process.",
        "Impact": IMPACT[each.family],
        "Diagnosis": f"```promql\n{promql.expand(each.expr)}\n```",
        CAUSES: _bullets(each.causes),
        REMEDIES: _bullets(each.remedies),
        "Source of the limit": each.source + ".",
    }
    return filled("runbook.md", title=each.alert, summary=each.summary, sections=_headed(sections, "##"))


def _headed(sections: Mapping[str, str], level: str) -> str:
    return "\n\n".join(f"{level} {name}\n\n{text}" for name, text in sections.items() if text)


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


def _diagnosis(conditions: Sequence[Condition]) -> str:
    """Return the queries: the conditions, the signals that they are judged by, and signals to compare with."""
    of = promql.named(conditions)
    read = [name for each in conditions for name in series_of(each.signal)]
    related = [name for each in conditions for name in each.related]
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
    outside = [(f"[{each.alert}]({each.alert}.md)", each.severity.value, each.summary) for each in PROMETHEUS_ALERTS]
    watchdog = (f"[{WATCHDOG}]({WATCHDOG}.md)", "none", "Alerting works.")
    return filled(
        "runbooks.md",
        conditions=table(("Alert", "Condition", "Holds", "Algorithms", "Summary"), rows),
        outside=table(("Alert", "Severity", "Summary"), [*outside, watchdog]),
        sources=filled("sources.md").rstrip(),
    )
