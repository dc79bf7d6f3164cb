"""Catalog -> alerts/rlexporter.rules.yml: recording rules, alerts, the watchdog.

All rules are in one group: they are evaluated in order, each with what those before it have just recorded, and a cause
and its symptom reach Alertmanager together. The YAML needs no library: it has texts as JSON strings and expressions
as blocks. What alerts have in common stands once, as a YAML anchor that the others merge: that they drop the labels of
which their texts are made, and the description of alerts on conditions.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence

from rlexporter.catalog.alerts import PrometheusAlert
from rlexporter.conditions.table import BY_ALERT
from rlexporter.model.condition import Condition
from scripts.pack import descriptions, links, promql
from scripts.pack.descriptions import by_condition
from scripts.pack.outside import MANY_RUNS, PROMETHEUS_ALERTS, WATCHDOG
from scripts.pack.recording_rules import RECORDING_RULES, TOLD, RecordingRule
from scripts.pack.template import filled

_WORD, _PLAIN = re.compile("[a-z_]+"), re.compile(r"\w((?!: | #).)*")
"""What YAML reads as a text without quotes: words other than yes, no, true and the like, and most of PromQL."""
_OF_RUNS = re.compile(r"\b(rl|rlexporter)_\w+")
"""Series that runs serve: `rlexporter generate --match` puts anything into their selectors."""
_CAUSE = "the condition that the verdict on the run names first"


def rules() -> str:
    """Return the file."""
    conditions = [each for each in map(_told, BY_ALERT.values()) if each]
    alerts = [_outside(MANY_RUNS), *map(_on_conditions, conditions)]
    alerts += [_outside(each) for each in PROMETHEUS_ALERTS if each is not MANY_RUNS]
    parts = [*map(_record, RECORDING_RULES), _merged(_merged("".join(alerts), "drops", _drops()), "said", _said())]
    return filled("rules.yml", rules="".join(parts).rstrip(), watchdog=WATCHDOG, runbook=links.runbook(WATCHDOG))


def _drops() -> str:
    """Return the labels that all alerts drop: what is set to nothing is no label, but texts still see what it was."""
    return " {" + _pairs(dict.fromkeys(TOLD, "")) + "}"


def _said() -> str:
    """Return the annotations that alerts on conditions have in common."""
    description = textwrap.indent(_written(descriptions.of_conditions()), "  ").strip()
    action = _quoted(descriptions.STOP_OR_LOOK)
    cause = f"&cause {_quoted('{{ $labels.cause }}')}"
    return f"\n          description: {description}\n          action: {action}\n          cause: {cause}"


def _merged(alerts: str, name: str, of_all: str) -> str:
    """Return ``alerts``, of which the first that merges ``name`` says what it is."""
    return alerts.replace(f"<<: *{name}", f"<<: &{name}{of_all}", 1)


def _told(conditions: Sequence[Condition]) -> list[Condition]:
    return [each for each in conditions if promql.alerts(each)]


def _record(rule: RecordingRule) -> str:
    comment = f"    # {rule.help.partition('. ')[0].removesuffix('.')}."
    labels = f"      labels: {{{_pairs(rule.labels)}}}\n" if rule.labels else ""
    return f"{comment}\n    - record: {rule.name}\n{_block('expr', promql.expand(rule.expr))}{labels}"


def _alert(
    alert: str, expr: str, times: Mapping[str, str], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> str:
    head = f"    - alert: {alert}\n{_block('expr', expr)}"
    waits = "".join(f"      {name}: {time}\n" for name, time in times.items() if time)
    notes = "".join(f"        {key}: {_written(value)}\n" for key, value in annotations.items())
    drops = "<<: *drops, " if promql.tells(expr) else ""
    return head + waits + f"      labels: {{{drops}{_pairs(labels)}}}\n      annotations:\n{notes}"


def _pairs(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value if _WORD.fullmatch(value) else _quoted(value)}" for key, value in pairs.items())


def _on_conditions(each: Sequence[Condition]) -> str:
    """Return the alert on conditions that have it in common."""
    alert = each[0].alert
    made = _alert(
        alert,
        promql.alert_on(each),
        {},
        {"family": by_condition({one.name: one.family.label for one in each})},
        {
            "summary": by_condition({one.name: one.summary for one in each}, "\n"),
            "runbook_url": links.runbook(alert),
        },
    )
    return made.replace("      annotations:\n", "      annotations:\n        <<: *said\n", 1)


def _outside(each: PrometheusAlert) -> str:
    severity = {} if each.milder else {"severity": each.severity.value}
    cause = {"cause": _CAUSE} if each.expr.startswith("rl:alert{") else {}
    condition = {"condition": each.condition} if each.condition else {}
    return _alert(
        each.alert,
        promql.expand(each.expr),
        {"for": each.wait, "keep_firing_for": each.keep},
        {**condition, **severity, "family": each.family.label},
        {
            "summary": each.summary,
            "description": descriptions.from_outside(each),
            **cause,
            "runbook_url": links.runbook(each.alert),
        },
    )


def _written(text: str) -> str:
    """Return an annotation for YAML. Lines of a template are made one again: it takes away what is between them."""
    if text == _CAUSE:
        return "*cause"
    if _PLAIN.fullmatch(text) and "{" not in text:
        return text
    return _quoted(text) if "\n" not in text else ">-\n" + textwrap.indent(text, " " * 10)


def _quoted(text: str) -> str:
    """Return ``text`` for YAML: in single quotes where it has double ones, which need no escapes there."""
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text, ensure_ascii=False)


def _block(name: str, text: str) -> str:
    if "\n" not in text and _PLAIN.fullmatch(text) and not _OF_RUNS.search(text):
        return f"      {name}: {text}\n"
    return f"      {name}: |-\n" + textwrap.indent(text, " " * 8) + "\n"
