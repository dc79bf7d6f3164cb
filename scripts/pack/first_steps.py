"""What to do about an alert, beside stopping the run or looking at it: the first remedy of the catalog. One place."""

from __future__ import annotations

import json

from rlexporter.conditions.table import CONDITIONS, STOP
from scripts.pack import promql
from scripts.pack.outside import PROMETHEUS_ALERTS


def of_conditions() -> dict[str, str]:
    """Return it by the name of the condition, for those that raise alerts."""
    found = {
        each.name: [text for text in each.remedies if text is not STOP] for each in CONDITIONS if promql.alerts(each)
    }
    return {name: texts[0] for name, texts in found.items() if texts}


def of_others() -> dict[str, str]:
    """Return it for what only Prometheus sees: by the name of the condition, or of an alert that has none."""
    return {each.condition or each.alert: each.remedies[0] for each in PROMETHEUS_ALERTS if each.remedies}


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
