"""Catalog -> alerts/rlexporter.rules.yml: recording rules, alerts, the watchdog.

All rules are in one group: they are evaluated in order, each with what those before it have just recorded, and a cause
and its symptom reach Alertmanager together. The YAML needs no library: it has texts as JSON strings and expressions
as blocks. The description that alerts on conditions share stands once, as a YAML anchor.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence

from rlexporter.catalog.conditions import BY_ALERT
from rlexporter.model.condition import Condition, PrometheusAlert
from scripts.pack import descriptions, links, promql
from scripts.pack.descriptions import by_condition
from scripts.pack.outside import MANY_RUNS, PROMETHEUS_ALERTS, WATCHDOG
from scripts.pack.recording_rules import RECORDING_RULES, RecordingRule
from scripts.pack.template import filled

_LINE = 100
_DESCRIPTION = "the description"


def rules() -> str:
    """Return the file."""
    alerts = [each for each in map(_told, BY_ALERT.values()) if each]
    parts = [*map(_record, RECORDING_RULES), _outside(MANY_RUNS)]
    parts += [_conditions(each, first=each is alerts[0]) for each in alerts]
    parts += [_outside(each) for each in PROMETHEUS_ALERTS if each is not MANY_RUNS]
    return filled("rules.yml", rules="".join(parts).rstrip(), watchdog=WATCHDOG, runbook=links.runbook(WATCHDOG))


def _told(conditions: Sequence[Condition]) -> list[Condition]:
    return [each for each in conditions if promql.alerts(each)]


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
    if name == "labels":
        return f"        labels: {{{', '.join(f'{key}: {_quoted(value)}' for key, value in pairs.items())}}}\n"
    return f"        {name}:\n" + "".join(f"          {key}: {_written(value)}\n" for key, value in pairs.items())


def _conditions(each: Sequence[Condition], *, first: bool) -> str:
    """Return the alert on conditions that have it in common; the ``first`` of all states the description."""
    alert = each[0].alert
    made = _alert(
        alert,
        promql.alert_on(each),
        {},
        {"family": by_condition({one.name: one.family.label for one in each})},
        {
            "summary": by_condition({one.name: one.summary for one in each}, "\n"),
            "description": _DESCRIPTION,
            "runbook_url": links.runbook(alert),
        },
    )
    text = f"&description {_written(descriptions.of_conditions())}" if first else "*description"
    return made.replace(_quoted(_DESCRIPTION), text)


def _outside(each: PrometheusAlert) -> str:
    severity = {} if each.milder else {"severity": each.severity.value}
    return _alert(
        each.alert,
        promql.expand(each.expr),
        {"for": each.wait, "keep_firing_for": each.keep},
        {**severity, "family": each.family.label},
        {
            "summary": each.summary,
            "description": descriptions.from_outside(each),
            "runbook_url": links.runbook(each.alert),
        },
    )


def _written(text: str) -> str:
    """Return an annotation for YAML. Lines of a template are made one again: it takes away what is between them."""
    return _quoted(text) if "\n" not in text else ">-\n" + textwrap.indent(text, " " * 12)


def _quoted(text: str) -> str:
    """Return ``text`` for YAML: in single quotes where it has double ones, which need no escapes there."""
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text, ensure_ascii=False)


def _block(name: str, text: str) -> str:
    if "\n" not in text and len(text) < _LINE and '"' in text and "'" not in text:
        return f"        {name}: '{text}'\n"
    return f"        {name}: |-\n" + textwrap.indent(text, " " * 10) + "\n"
