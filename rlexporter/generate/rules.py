"""Catalogue -> alerts/rlexporter.rules.yml: recording rules, an alert for each limit of each condition, the watchdog.

All rules are in one group: they are evaluated in order, each with what those before it have just recorded, and a cause
and its symptom reach Alertmanager together. The YAML needs no library: it has texts as JSON strings and expressions
as blocks.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from rlexporter.catalog import CONDITIONS, MANY_RUNS, PROMETHEUS_ALERTS, RECORDING_RULES, WATCHDOG
from rlexporter.generate import descriptions, promql
from rlexporter.generate.site import Site
from rlexporter.generate.template import filled
from rlexporter.model.alert import PrometheusAlert, RecordingRule
from rlexporter.model.condition import Condition, Limit


def rules(site: Site) -> str:
    """Return the file, with links to ``site``."""
    parts = [*map(_record, RECORDING_RULES), _outside(MANY_RUNS, site)]
    for condition in CONDITIONS:
        parts += [_condition(condition, limit, site) for limit in reversed(condition.limits)]
    parts += [_outside(each, site) for each in PROMETHEUS_ALERTS if each is not MANY_RUNS]
    return filled("rules.yml", rules="".join(parts).rstrip(), watchdog=WATCHDOG, runbook=site.runbook(WATCHDOG))


def _record(rule: RecordingRule) -> str:
    comment = textwrap.indent(textwrap.fill(rule.help, 110), " " * 6 + "# ")
    labels = _pairs("labels", rule.labels) if rule.labels else ""
    return f"{comment}\n      - record: {rule.name}\n{_block('expr', promql.expand(rule.expr))}{labels}"


def _alert(
    alert: str, expr: str, times: Mapping[str, str], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> str:
    head = f"      - alert: {alert}\n{_block('expr', expr)}"
    waits = "".join(f"        {name}: {time}\n" for name, time in times.items() if time)
    return head + waits + _pairs("labels", labels) + _pairs("annotations", annotations)


def _pairs(name: str, pairs: Mapping[str, str]) -> str:
    lines = (f"          {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in pairs.items())
    return f"        {name}:\n{''.join(lines)}"


def _condition(condition: Condition, limit: Limit, site: Site) -> str:
    severity = limit.severity.value
    return _alert(
        condition.alert,
        promql.condition(condition.name, severity),
        {},
        {"severity": severity, "family": condition.family.label},
        {
            "summary": condition.summary,
            "description": descriptions.of_condition(condition, limit),
            **site.links(condition.alert, condition.family),
        },
    )


def _outside(each: PrometheusAlert, site: Site) -> str:
    return _alert(
        each.alert,
        promql.expand(each.expr, site.jobs),
        {"for": each.wait, "keep_firing_for": each.keep},
        {"severity": each.severity.value, "family": each.family.label},
        {
            "summary": each.summary,
            "description": descriptions.from_outside(each),
            **site.links(each.alert, each.family, of_run=each.of_run),
        },
    )


def _block(name: str, text: str) -> str:
    return f"        {name}: |-\n" + textwrap.indent(text, " " * 10) + "\n"
