"""First screen of a run: how is it, is it learning, is it stable, is it fast, and what is wrong."""

from __future__ import annotations

from dataclasses import replace

from rlexporter.catalog import NAMED, RUNBOOKS
from rlexporter.generate.dashboards import stability, state
from rlexporter.generate.dashboards.boxes import (
    COLOURED,
    GREEN,
    GREY,
    RED,
    SEVERITY,
    Column,
    info,
    link,
    stat,
    table,
    words,
)
from rlexporter.generate.dashboards.frame import FIRING, ZERO, Json, Page, select
from rlexporter.generate.dashboards.panels import Query, described, gauge, override, rate, timeseries, without_range
from rlexporter.model.metric import Range

_ANY = select()
"""Matchers for all ranks, since a NaN is judged on the rank that sees it."""


def build(page: Page) -> None:
    """Add the screen to ``page``."""
    page.row("At a glance")
    _numbers(page)
    page.add(reward("Is it learning? Reward"), 8, 9)
    page.add(signals("Is it stable? Signals as a share of their alert limits"), 8, 9)
    page.add(_pace(), 8, 9)
    page.add(_alerts(), 6, 7)
    page.add(_conditions(), 10, 7)
    page.add(_process(), 8, 7)


def _numbers(page: Page) -> None:
    lasting = f"max by (run) (last_over_time(rl_last_step_timestamp_seconds{{{ZERO}}}[$__range]))"
    hidden = f"sum by (run) (rl_nonfinite_values_total{{{select()}}}) or 0 * max by (run) (rl_run_info{{{ZERO}}})"
    kind = f"max by (run, algorithm) (rl_run_info{{{ZERO}}})"
    step, planned = gauge("rl_step"), gauge("rl_steps_planned")
    state_of = described(NAMED["rl_run_state"]) + " unreachable: it was running, and is not seen any more."
    page.add(stat("State", Query(state.code(), "state"), state_of, mappings=[state.mapping()]), 3, 4)
    page.add(stat("Algorithm", Query(kind, "{{algorithm}}"), NAMED["rl_run_info"].help, name=True), 3, 4)
    page.add(stat("Step", step, described(NAMED["rl_step"])), 3, 4)
    done = Query(f"{step.expr} / {planned.expr}", "done")
    page.add(stat("Done", done, "The step as a share of the steps that are planned.", unit="percentunit"), 3, 4)
    age = Query(f"time() - {lasting}", "age")
    page.add(stat("Age of last step", age, described(NAMED["rl_last_step_timestamp_seconds"]), unit="s"), 3, 4)
    saved, good = gauge("rl_last_checkpoint_step", legend="last"), gauge("rl_last_good_checkpoint_step", legend="good")
    text = f"{NAMED['rl_last_checkpoint_step'].help} Good: {described(NAMED['rl_last_good_checkpoint_step'])}"
    page.add(stat("Checkpoints", saved, text, beside=[good], none="none yet"), 3, 4)
    nearest = Query(f"max by (run) ({stability.worst()})", "share")
    title = "Nearest to an alert"
    page.add(stat(title, nearest, stability.DESCRIPTION, unit="percentunit", steps=stability.NEAR), 3, 4)
    bad = Query(hidden, "values")
    steps = ((GREEN, None), (RED, 1.0))
    page.add(stat("NaN and infinite", bad, described(NAMED["rl_nonfinite_values_total"]), steps=steps), 3, 4)


def reward(title: str) -> Json:
    """Return a panel of the mean reward, with its spread as a band around it."""
    mean = gauge("rl_reward_mean", legend="mean")
    std = f"({gauge('rl_reward_std').expr} or {gauge('rl_scores_std').expr})"
    high, low = "mean + std", "mean - std"
    queries = [mean, Query(f"{mean.expr} + {std}", high), Query(f"{mean.expr} - {std}", low)]
    quiet = {"custom__lineWidth": 0, "color": {"mode": "fixed", "fixedColor": "blue"}}
    unseen = {"legend": True, "tooltip": False, "viz": False}
    overrides = [
        override("mean", color={"mode": "fixed", "fixedColor": "blue"}, custom__lineWidth=2),
        override(high, **quiet, custom__fillBelowTo=low, custom__fillOpacity=20, custom__hideFrom=unseen),
        override(low, **quiet, custom__hideFrom=unseen),
    ]
    return timeseries(title, queries, NAMED["rl_reward_mean"], overrides=overrides)


def signals(title: str) -> Json:
    """Return a panel of every signal that an alert is judged by, on one scale."""
    healthy = Range(None, 1.0, "the limits in force")
    shown = replace(NAMED["rl_step"], help=stability.DESCRIPTION, reading="", unit="fraction", healthy=healthy)
    return timeseries(title, stability.shares(), shown, absent=stability.ABSENT)


def _pace() -> Json:
    """Return a panel of step time and tokens per second."""
    right = override("tokens per second", custom__axisPlacement="right", unit="short", custom__lineStyle=_DASHED)
    return timeseries(
        "Is it fast? Step time and throughput",
        [*step_time(), rate("rl_tokens_total", "tokens per second")],
        without_range("rl_step_duration_seconds"),
        window=True,
        overrides=[right],
        absent="No step has ended in this time",
    )


_DASHED = {"fill": "dash", "dash": [6, 4]}


def step_time() -> list[Query]:
    """Return queries of the step time: measured from step to step, and as the trainer logs it."""
    parts = (f"rl_step_duration_seconds_{part}{{{ZERO}}}" for part in ("sum", "count"))
    total, count = (f"sum by (run) (rate({part}[$__rate_interval]))" for part in parts)
    return [Query(f"{total} / ({count} > 0)", "measured"), gauge("rl_step_time_seconds", legend="logged")]


def _alerts() -> Json:
    """Return a table of the alerts that fire, as Prometheus has them."""
    expr = f"max by (alertname, severity) (ALERTS{{{FIRING}}})"
    runbook = [link("Runbook", f"{RUNBOOKS}/${{__value.raw}}.md", away=True)]
    return table(
        "Alerts that fire",
        [Column("firing", expr)],
        "Alerts of this run that fire now. A click on a name opens its runbook.",
        labels={"alertname": {"links": runbook}, "severity": SEVERITY},
        hidden=("firing",),
        none="No alert fires",
    )


def _conditions() -> Json:
    """Return a table of the conditions that have begun, with step, value and limit."""
    by = "max by (condition, severity, rank)"
    yes = [words({"0": ("no", GREY), "1": ("yes", RED)})]
    columns = [
        Column("holds", f"{by} (rl_condition{{{_ANY}}})", {"mappings": yes, "custom__cellOptions": COLOURED}),
        Column("last began in step", f"{by} (rl_condition_last_event_step{{{_ANY}}})"),
        Column("value then", f"{by} (rl_condition_last_event_value{{{_ANY}}})", {"decimals": 3}),
        Column("limit then", f"{by} (rl_condition_last_event_threshold{{{_ANY}}})", {"decimals": 3}),
        Column("times", f"sum by (condition, severity, rank) (rl_condition_events_total{{{_ANY}}})"),
    ]
    index = [link("What it means", f"{RUNBOOKS}/README.md", away=True)]
    return table(
        "Conditions that have begun",
        columns,
        described(NAMED["rl_condition"]),
        labels={"condition": {"links": index}, "severity": SEVERITY, "rank": {}},
        sort="last began in step",
        none="Nothing has been wrong",
    )


def _process() -> Json:
    """Return a table of the processes: instance, model, versions."""
    names = ("instance", "attempt", "trainer", "model", "world_size", "trl")
    text = NAMED["rl_run_info"].help + " A click on an instance opens its status page."
    return info("Process", names, f"rl_run_info{{{ZERO}}}", text, none="No process serves this run now")
