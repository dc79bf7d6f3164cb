"""Dashboard of all runs, a row each: which of them needs a look?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards import compare, stability, state, variables
from rlexporter.generate.dashboards.boxes import (
    COLOURED,
    GREEN,
    GREY,
    OPEN_RUN,
    ORANGE,
    RED,
    STATUS_PAGE,
    Column,
    link,
    stat,
    table,
)
from rlexporter.generate.dashboards.frame import FIRING, ZERO, Json, Page, dashboard, select
from rlexporter.generate.dashboards.panels import Query, described, gauge, limits, timeseries, without_range
from rlexporter.model.metric import Metric

UID = "rlexporter-fleet"

_COMPARE = f"/d/{compare.UID}?${{run:queryparam}}&${{job:queryparam}}&${{datasource:queryparam}}&${{__url_time_range}}"
_STEPS = tuple(f"increase(rl_step_duration_seconds_{part}{{{ZERO}}}[$__range])" for part in ("sum", "count"))
_PACE = f"max by (run) ({_STEPS[0]} / ({_STEPS[1]} > 0)) or max by (run) (rl_step_time_seconds{{{ZERO}}})"
_SLOPES = tuple(f"deriv({name}{{{ZERO}}}[$__range])" for name in ("rl_reward_mean", "rl_step"))
_SLOPE = f"100 * max by (run) ({_SLOPES[0]} / ({_SLOPES[1]} > 0))"
_SPENT, _LOST = (
    f"max by (run) ({name}{{{select()}}}) / 3600"
    for name in ("rl:run_gpu_seconds", "rl:run_gpu_seconds_since_critical")
)
_COMPARED = (
    ("KL to the reference, per token", "rl_kl_per_token"),
    ("Entropy", "rl_entropy_per_token"),
    ("Completion length", "rl_completion_length_mean"),
)


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    page.row("Runs")
    page.add(_count("Running", "running"), 3, 4)
    page.add(_count("Failed", "failed", RED), 3, 4)
    page.add(_count("Preempted", "preempted", ORANGE), 3, 4)
    for title, severity, color in (("critical alerts", "critical", RED), ("warnings only", "warning", ORANGE)):
        page.add(_sick(title, severity, color), 3, 4)
    total = Query(f"sum(rate(rl_tokens_total{{{ZERO}}}[$__rate_interval])) or vector(0)", "tokens per second")
    page.add(stat("Tokens per second", total, described(NAMED["rl_tokens_total"]), unit="short"), 3, 4)
    page.add(_hours("GPU hours", _SPENT, "GPU hours that the runs have used, each since it was last started."), 3, 4)
    lost = "Those of them that were spent since the first critical alert of a run that still fires."
    page.add(_hours("GPU hours since critical", _LOST, lost, ORANGE), 3, 4)
    page.add(_runs(), 24, 10)
    page.row("Side by side")
    page.add(timeseries("Reward", [gauge("rl_reward_mean", legend="{{run}}")], NAMED["rl_reward_mean"]))
    share = Query(f"max by (run) ({stability.worst()})", "{{run}}")
    page.add(
        timeseries(
            "Nearest to an alert limit",
            [share],
            NAMED["rl_step"],
            unit="percentunit",
            log=True,
            description=stability.DESCRIPTION,
            absent=stability.ABSENT,
        )
    )
    pace = Query(_PACE.replace("$__range", "$__rate_interval"), "{{run}}")
    page.add(timeseries("Step time", [pace], NAMED["rl_step_duration_seconds"]))
    for title, name in _COMPARED:
        page.add(timeseries(title, [gauge(name, legend="{{run}}")], without_range(name)))
    return dashboard(
        UID,
        "RL training: fleet",
        "All runs: state, step, reward, alerts, age of the last step; a click on a run opens it.",
        page.panels,
        variables=variables.common(variables.run(multi=True)),
    )


def _count(title: str, of: str, color: str = GREEN) -> Json:
    matchers = select('rank="0"', f'state="{of}"')
    query = Query(f"sum(max by (run) (rl_run_state{{{matchers}}})) or vector(0)", "runs")
    return stat(title, query, described(NAMED["rl_run_state"]), steps=((GREY, None), (color, 1.0)))


def _sick(title: str, severity: str, color: str) -> Json:
    firing = f'count by (run) (ALERTS{{{FIRING},severity="{severity}"}})'
    if severity == "warning":
        firing += f' unless on (run) ALERTS{{{FIRING},severity="critical"}}'
    query = Query(f"count({firing}) or vector(0)", "runs")
    text = f"Runs with {title} that fire now."
    return stat(f"Runs with {title}", query, text, steps=((GREY, None), (color, 1.0)))


def _hours(title: str, of_each: str, text: str, color: str = GREY) -> Json:
    query = Query(f"sum({of_each}) or vector(0)", "hours")
    return stat(title, query, text, unit="h", steps=((GREY, None), (color, 0.1)))


_MIDDLE = ("step", "done", "step time", "age of last step", "reward", "reward trend")
_WRONG, _COST = ("critical", "warnings", "NaN"), ("GPU hours", "lost")


def _runs() -> Json:
    """Return a table with a row per run; the values of labels are columns too."""
    labels: dict[str, dict[str, object]] = {
        "run": {"links": [OPEN_RUN], "custom__width": 200},
        "algorithm": {},
        "model": {},
        "team": {},
        "user": {},
        "signal": {},
        "instance": {"links": [STATUS_PAGE]},
    }
    made = table(
        "Runs",
        list(_columns()),
        "One row a run, with those that are gone but were there in the time that is shown. A click on a run opens it, "
        "one on its instance the status page. Signal: the one that is nearest to the limit of an alert, and what "
        "share of it. Reward trend: how much the reward gains in 100 steps, over the time that is shown. GPU hours: "
        "what the run has used since it was last started; lost: those since its first critical alert that still "
        "fires. Team and user are there where RLEXPORTER_LABELS sets them.",
        labels=labels,
        hidden=("info", "where"),
        order=(
            "run",
            "team",
            "user",
            "state",
            "algorithm",
            "model",
            *_MIDDLE,
            "signal",
            "of its limit",
            *_WRONG,
            *_COST,
        ),
        sort="critical",
        none="No run here: is anything scraped?",
    )
    made["links"] = [_to_compare()]
    return made


def _to_compare() -> Json:
    """Return the link of the table to what compares the runs that are chosen; all fields are there, as of a page's."""
    made = {**link("Compare the runs that are chosen, by step", _COMPARE), "type": "link", "icon": "", "tooltip": ""}
    return {**made, "asDropdown": False, "includeVars": False, "keepTime": False, "tags": []}


def _columns() -> tuple[Column, ...]:
    age = f"time() - max by (run) (last_over_time(rl_last_step_timestamp_seconds{{{ZERO}}}[$__range]))"
    info = f"last_over_time(rl_run_info{{{ZERO}}}[$__range])"
    bad = f"sum by (run) (last_over_time(rl_nonfinite_values_total{{{select()}}}[$__range]))"
    red, orange = _from_one(RED), _from_one(ORANGE)
    share = limits(*stability.NEAR)
    done = f"max by (run) (rl_step{{{ZERO}}}) / max by (run) (rl_steps_planned{{{ZERO}}})"
    return (
        Column("state", state.code(), {"mappings": [state.mapping()], "custom__cellOptions": COLOURED}),
        Column("info", f"max by (run, algorithm, model, team, user) ({info})"),
        Column("where", f"max by (run, instance) (rl_run_info{{{ZERO}}})"),
        Column("step", f"max by (run) (last_over_time(rl_step{{{ZERO}}}[$__range]))"),
        Column("done", done, {"unit": "percentunit"}),
        Column("step time", _PACE, {"unit": "s"}),
        Column("age of last step", age, {"unit": "s"}),
        Column("reward", f"max by (run) (last_over_time(rl_reward_mean{{{ZERO}}}[$__range]))", {"decimals": 3}),
        Column("reward trend", _SLOPE, {"decimals": 3, "thresholds": _TREND, "custom__cellOptions": COLOURED}),
        Column(
            "of its limit",
            stability.worst(),
            {"unit": "percentunit", "thresholds": share, "custom__cellOptions": COLOURED},
        ),
        Column("critical", _alerts("critical"), red),
        Column("warnings", _alerts("warning"), orange),
        Column("NaN", f"{bad} or 0 * max by (run) ({info})", red),
        Column("GPU hours", _SPENT, {"unit": "h"}),
        Column(
            "lost",
            _LOST,
            {"unit": "h", "thresholds": limits((GREY, None), (ORANGE, 0.1)), "custom__cellOptions": COLOURED},
        ),
    )


_TREND = limits((RED, None), (GREY, -0.001), (GREEN, 0.001))


def _from_one(color: str) -> dict[str, object]:
    return {"thresholds": limits((GREY, None), (color, 1.0)), "custom__cellOptions": COLOURED}


def _alerts(severity: str) -> str:
    """Return the number of firing alerts per run, 0 for runs that have none."""
    firing = f'count by (run) (ALERTS{{{FIRING},severity="{severity}"}})'
    return f"{firing} or 0 * max by (run) (rl_run_info{{{ZERO}}})"
