"""What to do about an alert, beside stopping the run or looking at it: the first step of its runbook. One place."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlexporter.catalog.runbooks import runbook
from rlexporter.conditions.table import CONDITIONS
from rlexporter.status.steps import SAID
from scripts.pack import promql
from scripts.pack.outside import PROMETHEUS_ALERTS


def of_conditions() -> dict[str, str]:
    """Return it by the name of the condition, for those that raise alerts."""
    return {each.name: _first(each.alert, each.name, without=SAID) for each in CONDITIONS if promql.alerts(each)}


def of_others() -> dict[str, str]:
    """Return it for what only Prometheus sees: by the name of the condition, or of an alert that has none."""
    return {each.condition or each.alert: _first(each.alert, each.condition) for each in PROMETHEUS_ALERTS}


def _first(alert: str, condition: str, without: Sequence[str] = ()) -> str:
    steps = [step for step in runbook(alert).steps_of(condition) if step.id not in without]
    first = next((step for step in steps if not step.algorithms), steps[0])  # a message does not know the algorithm
    return first.named(first.text)


def as_template() -> str:
    """Return a part of a template of Alertmanager that sets ``$remedy`` for an alert."""
    named = {each.alert for each in PROMETHEUS_ALERTS if not each.condition}
    by_name = {name: text for name, text in of_others().items() if name in named}
    by_condition = {name: text for name, text in of_others().items() if name not in named}
    cases = [*_cases("condition", of_conditions() | by_condition), *_cases("alertname", by_name)]
    return "{{- " + "\n{{- else ".join(cases) + "\n{{- end -}}"


def _cases(label: str, texts: dict[str, str]) -> list[str]:
    named: dict[str, list[str]] = {}
    for name, text in texts.items():
        named.setdefault(text, []).append(json.dumps(name))
    return [
        f"if eq .Labels.{label} {' '.join(names)} -}}}}{{{{- $remedy = {json.dumps(text)} -}}}}"
        for text, names in named.items()
    ]
