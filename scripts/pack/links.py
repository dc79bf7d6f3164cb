"""Links of alerts: to runbooks, and to the dashboards of a Grafana that only a site knows.

`rlexporter generate --grafana-url` puts the latter into the rules, with what `as_json` returns.
"""

from __future__ import annotations

import json

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.commands.generate import IDENTITY
from rlexporter.conditions.table import BY_ALERT
from scripts.pack import promql
from scripts.pack.dashboards import fleet
from scripts.pack.dashboards.families import GRPO, PPO
from scripts.pack.dashboards.linked import panel_id
from scripts.pack.descriptions import by_condition
from scripts.pack.outside import PROMETHEUS_ALERTS

VARIABLES = tuple(name for name in IDENTITY if name != "run")
"""Labels of an alert that a link hands to a dashboard as variables; Grafana passes over those it does not know."""

_PPO_RUNS = PPO.runs.replace('"', '\\"')
_OF_RUN = ",".join(f"{name}=%q" for name in IDENTITY)
_GIVEN = " ".join(f"$labels.{name}" for name in IDENTITY)
_IS_PPO = f'printf "last_over_time(rl_run_info{{{_OF_RUN},{_PPO_RUNS}}}[1d])" {_GIVEN} | query'
_UID = f"{{{{ with {_IS_PPO} }}}}{PPO.uid}{{{{ else }}}}{GRPO.uid}{{{{ end }}}}"
_WHERE = "".join(f"{{{{ with $labels.{name} }}}}&var-{name}={{{{ urlquery . }}}}{{{{ end }}}}" for name in VARIABLES)
OF_RUN = f"/d/{_UID}?var-run={{{{ urlquery $labels.run }}}}{_WHERE}"
OF_ALL = f"/d/{fleet.UID}?var-run=%24__all{_WHERE}"
"""The dashboard of the run of an alert, and that of all runs, below the address of Grafana.

Alertmanager's template adds the time to it: it knows when an alert began, and Prometheus would have to ask.
"""


def runbook(alert: str) -> str:
    """Return the address of the runbook of an alert."""
    return f"{RUNBOOKS}/{alert}.md"


def as_json() -> str:
    """Return the paths of dashboards, and the panel that shows best what an alert is about, by its name.

    The panel is a template, or empty if there is none; null for an alert that is of no run.
    """
    panels: dict[str, str | None] = {
        alert: by_condition({each.name: panel_id(each.family) for each in conditions if promql.alerts(each)})
        for alert, conditions in BY_ALERT.items()
        if any(map(promql.alerts, conditions))
    }
    outside: dict[str, dict[str, str]] = {}
    for each in PROMETHEUS_ALERTS:
        outside.setdefault(each.alert, {})[each.condition] = panel_id(each.family)
    panels |= {alert: by_condition(panel_of) for alert, panel_of in outside.items()}
    panels |= {each.alert: None for each in PROMETHEUS_ALERTS if not each.of_run}
    return json.dumps({"of_run": OF_RUN, "of_all": OF_ALL, "panels": panels}, indent=1, ensure_ascii=False) + "\n"
