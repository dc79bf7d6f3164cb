"""Catalogue -> alerts/rlexporter.rules.yml: recording rules, an alert for each limit of each condition, the watchdog.

All alerts are in one group, causes first, so that a cause and its symptom reach Alertmanager together, whichever began
earlier. The YAML needs no library: it has texts as JSON strings and expressions as blocks.
"""

from __future__ import annotations

import json
import textwrap

from rlexporter.catalog import CONDITIONS, MANY_RUNS, PROMETHEUS_ALERTS, RECORDING_RULES, WATCHDOG
from rlexporter.catalog.causes import is_ever_explained
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.generate import promql
from rlexporter.generate.site import Site
from rlexporter.generate.template import filled
from rlexporter.model.alert import PrometheusAlert
from rlexporter.model.condition import Condition, Limit


def _latest(series: str, said: str) -> str:
    """Return a part of a template: the text ``said`` with the latest value of ``series`` for the condition, if any."""
    labels = ",".join(f"{label}=%q" for label in _OF)
    given = " ".join(f"$labels.{label}" for label in _OF)
    return (
        f'{{{{ with printf "max(last_over_time({series}{{{labels}}}[{promql.WINDOW}]))" {given} | query }}}}'
        f", {said}{{{{ end }}}}"
    )


_OF = ("run", "condition", "severity")
_THRESHOLD = _latest("rl_threshold", "limit {{ . | first | value | humanize }}")
_SINCE = _latest("rl_condition_last_event_step", "since step {{ . | first | value }}")


def rules(site: Site) -> str:
    """Return the file, with links to ``site``."""
    parts = [
        *(_record(record.name, promql.expand(record.expr)) for record in RECORDING_RULES),
        _outside(MANY_RUNS, site),
    ]
    for condition in CONDITIONS:
        parts += [_condition(condition, limit, site) for limit in reversed(condition.limits)]
    parts += [_outside(each, site) for each in PROMETHEUS_ALERTS if each is not MANY_RUNS]
    return filled("rules.yml", rules="".join(parts).rstrip(), watchdog=WATCHDOG, runbook=site.runbook(WATCHDOG))


def _record(name: str, expr: str) -> str:
    return f"      - record: {name}\n{_block('expr', expr)}"


def _alert(alert: str, expr: str, wait: str, labels: dict[str, str], annotations: dict[str, str]) -> str:
    lines = [f"      - alert: {alert}\n", _block("expr", expr)]
    if wait:
        lines.append(f"        for: {wait}\n")
    for name, pairs in (("labels", labels), ("annotations", annotations)):
        lines.append(f"        {name}:\n")
        lines += [f"          {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in pairs.items()]
    return "".join(lines)


def _condition(condition: Condition, limit: Limit, site: Site) -> str:
    severity = limit.severity.value
    unit = f" {SIGNAL_NAMED[condition.signal].unit}".rstrip()
    return _alert(
        condition.alert,
        promql.condition(condition.name, severity, symptom=is_ever_explained(condition, limit)),
        "",
        {"severity": severity, "family": condition.family.label},
        {
            "summary": condition.summary,
            "description": f"Run {{{{ $labels.run }}}}: {{{{ $value | humanize }}}}{unit}{_THRESHOLD}{_SINCE}.",
            **site.links(condition.alert),
        },
    )


def _outside(each: PrometheusAlert, site: Site) -> str:
    run = "Run {{ $labels.run }}: " if each.of_run else ""
    return _alert(
        each.alert,
        promql.expand(each.expr),
        each.wait,
        {"severity": each.severity.value, "family": each.family.label},
        {
            "summary": each.summary,
            "description": run + each.description,
            **site.links(each.alert, of_run=each.of_run),
        },
    )


def _block(name: str, text: str) -> str:
    return f"        {name}: |-\n" + textwrap.indent(text, " " * 10) + "\n"
