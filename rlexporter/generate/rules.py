"""Catalogue -> alerts/rlexporter.rules.yml: recording rules, an alert for each condition, the watchdog.

All rules are in one group: they are evaluated in order, each with what those before it have just recorded, and a cause
and its symptom reach Alertmanager together. The YAML needs no library: it has texts as JSON strings and expressions
as blocks. A description that several alerts share stands once, as a YAML anchor.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from rlexporter.catalog import CONDITIONS, MANY_RUNS, PROMETHEUS_ALERTS, RECORDING_RULES, WATCHDOG
from rlexporter.generate import descriptions, promql
from rlexporter.generate.site import Site
from rlexporter.generate.template import filled
from rlexporter.model.condition import Condition, PrometheusAlert, RecordingRule

_LINE = 100


def rules(site: Site) -> str:
    """Return the file, with links to ``site``."""
    parts = [*map(_record, RECORDING_RULES), _outside(MANY_RUNS, site)]
    anchors: set[str] = set()
    parts += [_condition(each, site, anchors) for each in CONDITIONS if promql.alerts(each)]
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
    written = {key: _quoted(value) for key, value in pairs.items()}
    if name == "labels":
        return f"        labels: {{{', '.join(f'{key}: {value}' for key, value in written.items())}}}\n"
    return f"        {name}:\n" + "".join(f"          {key}: {value}\n" for key, value in written.items())


def _condition(condition: Condition, site: Site, anchors: set[str]) -> str:
    name, text = descriptions.of_condition(condition)
    made = _alert(
        condition.alert,
        promql.condition(condition),
        {},
        {"family": condition.family.label},
        {"summary": condition.summary, "description": text, **site.links(condition.alert, condition.family)},
    )
    written = _quoted(text)
    made = made.replace(written, f"*{name}" if name in anchors else f"&{name} {written}")
    anchors.add(name)
    return made


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


def _quoted(text: str) -> str:
    """Return ``text`` for YAML: in single quotes where it has double ones, which need no escapes there."""
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text, ensure_ascii=False)


def _block(name: str, text: str) -> str:
    if "\n" not in text and len(text) < _LINE and '"' in text and "'" not in text:
        return f"        {name}: '{text}'\n"
    return f"        {name}: |-\n" + textwrap.indent(text, " " * 10) + "\n"
