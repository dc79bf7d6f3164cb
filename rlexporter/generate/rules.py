"""Catalogue -> alerts/rlexporter.rules.yml: recording rules, an alert for each limit of each condition, the watchdog.

All rules are in one group: they are evaluated in order, each with what those before it have just recorded, and a cause
and its symptom reach Alertmanager together. The YAML needs no library: it has texts as JSON strings and expressions
as blocks.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence

from rlexporter.catalog import CONDITIONS, MANY_RUNS, PROMETHEUS_ALERTS, RECORDING_RULES, WATCHDOG
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.generate import promql
from rlexporter.generate.site import Site
from rlexporter.generate.template import filled
from rlexporter.model.alert import PrometheusAlert, RecordingRule
from rlexporter.model.condition import Condition, Limit

_RUN = ("cluster", "namespace", "job", "run")
_OF = (*_RUN, "condition", "severity")


def _labels(names: Sequence[str]) -> tuple[str, str]:
    """Return what selects by these labels in the format of a query, and what fills that format."""
    return ",".join(f"{name}=%q" for name in names), " ".join(f"$labels.{name}" for name in names)


def _said(records: Mapping[str, str], of: Sequence[str]) -> str:
    """Return a part of a template: the text of each record about its value, nothing where it has none.

    ``of``: the labels that the alert shares with them. They are asked for at once: Prometheus fills templates in each
    evaluation, and each question costs it as much as a rule.
    """
    labels, given = _labels(of)
    asked = f'printf "{{__name__=~\\"{"|".join(records)}\\",{labels}}}" {given} | query'
    parts = (
        f'{{{{ range $said }}}}{{{{ if eq .Labels.__name__ "{name}" }}}}{text}{{{{ end }}}}{{{{ end }}}}'
        for name, text in records.items()
    )
    return f"{{{{ with $said := {asked} }}}}{''.join(parts)}{{{{ end }}}}"


_CHECKPOINT_STEP = {
    "rl:run_last_good_checkpoint_step": ' The last good checkpoint is that of step {{ .Value | printf "%.0f" }}.'
}
_CHECKPOINT = _said(_CHECKPOINT_STEP, _RUN)
_SINCE = _said(
    {
        "rl:condition_threshold": ', limit {{ .Value | printf "%.4g" }}',
        "rl:condition_step": ', since step {{ .Value | printf "%.0f" }}',
    },
    _OF,
)
_COST = _said(
    {
        **_CHECKPOINT_STEP,
        "rl:run_gpu_hours_since_critical": ' {{ .Value | printf "%.1f" }} GPU hours were spent since it went wrong.',
    },
    _RUN,
)


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
    unit = f" {SIGNAL_NAMED[condition.signal].unit}".rstrip()
    value = '{{ $value | printf "%.4g" }}'
    return _alert(
        condition.alert,
        promql.condition(condition.name, severity),
        {},
        {"severity": severity, "family": condition.family.label},
        {
            "summary": condition.summary,
            "description": f"Run {{{{ $labels.run }}}}: {value}{unit}{_SINCE}.{_COST}",
            **site.links(condition.alert),
        },
    )


def _outside(each: PrometheusAlert, site: Site) -> str:
    labels, given = _labels(_RUN)
    said = each.description.replace("LABELS", labels).replace("GIVEN", given)
    if each.of_run:
        said = f"Run {{{{ $labels.run }}}}: {said}" + (_CHECKPOINT if each.tells_checkpoint else "")
    return _alert(
        each.alert,
        promql.expand(each.expr),
        {"for": each.wait, "keep_firing_for": each.keep},
        {"severity": each.severity.value, "family": each.family.label},
        {"summary": each.summary, "description": said, **site.links(each.alert, of_run=each.of_run)},
    )


def _block(name: str, text: str) -> str:
    return f"        {name}: |-\n" + textwrap.indent(text, " " * 10) + "\n"
