"""The rules file -> grafana/alerting: what Grafana's own alerting is provisioned from, where there is no Alertmanager.

Prometheus goes on recording what rules ask for. Each alert becomes one rule of Grafana that asks Prometheus the same.

Two things differ. A label of the query is one of the alert, and none can be dropped: so a rule asks for what is wrong
without what `rl:alert` knows of it, and its texts leave that out. And a `$` in a label stands for a variable of the
environment in such a file, so texts say `.Labels` instead of `$labels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from rlexporter.commands.generate import IDENTITY
from rlexporter.conditions.table import BY_ALERT
from scripts.pack import descriptions, first_steps, links, promql
from scripts.pack.outside import MANY_RUNS, WATCHDOG
from scripts.pack.recording_rules import TOLD
from scripts.pack.template import filled, template

_DATA_SOURCE = "prometheus"
"""The uid of the data source, which docs/howto/grafana-alerting.md says how to replace."""
_INTERVAL = "30s"
"""Grafana evaluates every ten seconds at most often, and in multiples of that."""

_ROW = "is_null($A) == 0"
"""A row of the query fires, whatever its value: by itself, Grafana takes a 0 for a healthy row.

It has one operand. Two would be joined by labels, and a row whose labels are a part of those of another be there twice.
"""

_BLANK = '{{ " " }}'
"""What a part of a template that follows does not take away."""
_RUN = "{{ with $labels.run }}{{ urlquery . }}{{ else }}%24__all{{ end }}"
_DASHBOARD = r"""{{ externalURL | reReplaceAll "/\\z" "" }}""" + links.OF_ALL.replace("%24__all", _RUN)
"""The row of the run in the fleet, which leads to its dashboard: that of the run depends on what Grafana cannot ask."""


def files(rules_text: str) -> dict[str, str]:
    """Return the files, by name, for the rules file."""
    groups = yaml.safe_load(rules_text)["groups"]
    found = [each for group in groups for each in group["rules"] if "alert" in each]
    names = [each["alert"] for each in found]
    alerts = [_rule(each, shares=names.count(each["alert"]) > 1) for each in found]
    gaps = {"watchdog": WATCHDOG, "storm": MANY_RUNS.alert, "identity": ", ".join(IDENTITY)}
    group = {"orgId": 1, "name": "rlexporter", "folder": "RL alerts", "interval": _INTERVAL, "rules": alerts}
    return {
        "rules.yml": filled("grafana/rules.yml", groups=_yaml([group])),
        "contact-points.yml": template("grafana/contact-points.yml"),
        "policies.yml": filled("grafana/policies.yml", **gaps),
    }


def _rule(alert: Mapping[str, Any], *, shares: bool) -> dict[str, Any]:
    """Return a rule; ``shares``: others have its name, which is the title, and Grafana takes each title only once."""
    name, condition = alert["alert"], alert["labels"].get("condition", "")
    notes = {each: _text(said) for each, said in _notes(alert).items()}
    keep = {"keepFiringFor": alert["keep_firing_for"]} if "keep_firing_for" in alert else {}
    return {
        "uid": f"rlexporter-{condition if shares else name}",
        "title": f"{name}: {condition}" if shares else name,
        "condition": "B",
        "data": [
            _stage("A", "prometheus", _DATA_SOURCE, expr=_untold(alert["expr"]), instant=True, range=False),
            _stage("B", "__expr__", "__expr__", type="math", expression=_ROW),
        ],
        "noDataState": "OK",
        # While Prometheus does not answer, runs stay what they were, and the heartbeat stops: that is one message.
        "execErrState": "Error" if name == WATCHDOG else "KeepLast",
        "for": alert.get("for", "0s"),
        **keep,
        "missing_series_evals_to_resolve": 1,
        "annotations": notes,
        "labels": {each: _text(said) for each, said in alert["labels"].items() if said},
        "isPaused": False,
    }


def _stage(ref: str, kind: str, uid: str, **model: Any) -> dict[str, Any]:
    return {
        "refId": ref,
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": uid,
        "model": {"refId": ref, "datasource": {"type": kind, "uid": uid}, **model},
    }


def _untold(expr: str) -> str:
    """Return what an alert asks for, without the labels that its texts are made of in Prometheus."""
    return f"max without ({', '.join(TOLD)}) ({expr})" if promql.tells(expr) else expr


def _notes(alert: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations; what the rules say of all conditions is said of the alert's own."""
    name, notes = alert["alert"], {each: said for each, said in alert["annotations"].items() if each != "cause"}
    conditions = BY_ALERT.get(name)
    if conditions:
        steps = first_steps.of_conditions()
        of_each = {each.name: steps[each.name] for each in conditions if each.name in steps}
        notes |= {
            "description": descriptions.of_conditions(conditions),
            "action": f"{notes['action']}{_BLANK}{descriptions.by_condition(of_each)}",
        }
    else:
        step = first_steps.of_others().get(alert["labels"].get("condition", name))
        notes |= {"action": step} if step else {}
    return {**notes, "dashboard": _DASHBOARD}


def _text(template_text: str) -> str:
    """Return a text or label for Grafana."""
    text = "".join(template_text.splitlines())
    return text.replace("$labels.", ".Labels.").replace("$value", ".Values.A.Value").strip()


class _Dumper(yaml.SafeDumper):
    """Writes what has quotes or lines as a block, without escapes: so `rlexporter generate` finds what it fills in."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text or '"' in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def _yaml(data: Any) -> str:
    written: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)
    return written.rstrip()
