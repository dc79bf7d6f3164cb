"""All runs, a row each: which of them needs a look?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards.frame import Json, Page, dashboard, run_variable, select
from rlexporter.generate.dashboards.panels import Query, described, gauge, stat, table, timeseries
from rlexporter.model import Metric

UID = "rlexporter-fleet"
ZERO = select('rank="0"')

FIRING = 'alertname=~"RL.+",alertstate="firing",run=~"$run"'

_COLUMNS = (
    ("state", f"max by (run, state) (rl_run_state{{{ZERO}}} == 1)"),
    ("algorithm", f"max by (run, algorithm, model) (rl_run_info{{{ZERO}}})"),
    ("step", f"max by (run) (rl_step{{{ZERO}}})"),
    ("steps per hour", f"3600 * max by (run) (rate(rl_steps_total{{{ZERO}}}[$__rate_interval]))"),
    ("reward", f"max by (run) (rl_reward_mean{{{ZERO}}})"),
    ("reward, an hour ago", f"max by (run) (rl_reward_mean{{{ZERO}}} offset 1h)"),
    (
        "critical alerts",
        f'count by (run) (ALERTS{{{FIRING},severity="critical"}})',
    ),
    ("warnings", f'count by (run) (ALERTS{{{FIRING},severity="warning"}})'),
    ("NaN and infinite", f"sum by (run) (rl_nonfinite_values_total{{{select()}}})"),
    ("age of last step", f"time() - max by (run) (rl_last_step_timestamp_seconds{{{ZERO}}})"),
)
_HIDDEN = ("state", "algorithm")
_UNITS = {"age of last step": "s"}


def build(catalog: Sequence[Metric]) -> Json:
    """The dashboard."""
    page = Page()
    page.row("Runs")
    page.add(_count("Running", "running"), 4, 4)
    page.add(_count("Failed", "failed"), 4, 4)
    page.add(_count("Preempted", "preempted"), 4, 4)
    sick = Query(f'count(count by (run) (ALERTS{{{FIRING},severity="critical"}}))', "runs")
    page.add(stat("Runs with critical alerts", sick, "Runs with at least one critical alert that fires now."), 6, 4)
    steps = Query(f"3600 * sum(rate(rl_steps_total{{{ZERO}}}[$__rate_interval]))", "steps")
    page.add(stat("Steps per hour", steps, described(NAMED["rl_steps_total"])), 6, 4)
    page.add(_runs(), 24, 12)
    page.row("Side by side")
    for title, name in (
        ("Reward", "rl_reward_mean"),
        ("KL, per token", "rl_kl_per_token"),
        ("Entropy", "rl_entropy_per_token"),
    ):
        page.add(timeseries(title, [gauge(name, legend="{{run}}")], NAMED[name]))
    return dashboard(
        UID,
        "RL training: fleet",
        "All runs: state, step, reward, alerts, age of the last step; a click on a run opens it.",
        page.panels,
        variables=({**run_variable(multi=True)},),
    )


def _count(title: str, state: str) -> Json:
    of = select('rank="0"', f'state="{state}"')
    query = Query(f"sum(max by (run) (rl_run_state{{{of}}}))", "runs")
    return stat(title, query, described(NAMED["rl_run_state"]))


def _runs() -> Json:
    """One row a run; the values of labels are columns too."""
    queries = [Query(expr, "", instant=True, table=True) for _, expr in _COLUMNS]
    letters = [chr(ord("A") + i) for i in range(len(_COLUMNS))]
    renamed = {f"Value #{letter}": name for letter, (name, _) in zip(letters, _COLUMNS, strict=True)}
    panel = table("Runs", queries, "One row a run. A click on its name opens it.", _overrides())
    options = panel["transformations"][1]["options"]
    options["renameByName"] = {each: name for each, name in renamed.items() if name not in _HIDDEN}
    options["excludeByName"].update({each: True for each, name in renamed.items() if name in _HIDDEN})
    options["indexByName"] = {"run": 0, "state": 1, "algorithm": 2, "model": 3}
    return panel


def _overrides() -> list[Json]:
    link = {
        "title": "Open",
        "url": "/d/rlexporter-run?var-run=${__value.raw}&${datasource:queryparam}&${__url_time_range}",
    }
    made: list[Json] = [
        {"matcher": {"id": "byName", "options": "run"}, "properties": [{"id": "links", "value": [link]}]}
    ]
    for name, unit in _UNITS.items():
        made.append({"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]})
    red = {"mode": "absolute", "steps": [{"color": "transparent", "value": None}, {"color": "red", "value": 1}]}
    cell = {"id": "custom.cellOptions", "value": {"type": "color-background"}}
    for name in ("critical alerts", "NaN and infinite"):
        properties = [{"id": "thresholds", "value": red}, cell]
        made.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    return made
