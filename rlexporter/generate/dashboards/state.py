"""Parts of the dashboard of a run that are not lines of one metric: its state, its speed, what was hidden."""

from __future__ import annotations

from rlexporter.catalog import NAMED, RUNBOOKS
from rlexporter.generate.dashboards.frame import Json, Page, select
from rlexporter.generate.dashboards.panels import (
    Query,
    described,
    gauge,
    heatmap,
    stat,
    table,
    timeseries,
    without_range,
)

ZERO = select('rank="0"')
_COLORS = {
    "running": "green",
    "finished": "blue",
    "starting": "yellow",
    "preempted": "orange",
    "stopped": "orange",
    "failed": "red",
}


def overview(page: Page) -> None:
    """How is it?"""
    page.row("State")
    state = Query(f"max by (run, state) (rl_run_state{{{ZERO}}} == 1)", "{{state}}")
    page.add(_named(stat("State", state, described(NAMED["rl_run_state"]))), 4, 4)
    info = Query(f"max by (run, algorithm) (rl_run_info{{{ZERO}}})", "{{algorithm}}")
    page.add(_named(stat("Algorithm", info, NAMED["rl_run_info"].help)), 3, 4)
    page.add(stat("Step", gauge("rl_step"), described(NAMED["rl_step"])), 3, 4)
    page.add(stat("Planned", gauge("rl_steps_planned"), described(NAMED["rl_steps_planned"])), 3, 4)
    age = Query(f"time() - max by (run) (rl_last_step_timestamp_seconds{{{ZERO}}})", "age")
    page.add(stat("Age of the last step", age, described(NAMED["rl_last_step_timestamp_seconds"]), unit="s"), 4, 4)
    saved = Query(f"max by (run) (rl_last_checkpoint_step{{{ZERO}}})", "step")
    page.add(stat("Last checkpoint", saved, described(NAMED["rl_last_checkpoint_step"])), 4, 4)
    hidden = Query(f"sum by (run) (rl_nonfinite_values_total{{{select()}}})", "values")
    page.add(stat("NaN and infinite", hidden, described(NAMED["rl_nonfinite_values_total"])), 3, 4)
    page.add(_alerts(), 10, 8)
    page.add(_conditions(), 14, 8)


def _named(panel: Json) -> Json:
    """Show the name of the series, in the colour of the state."""
    panel["options"]["textMode"] = "name"
    panel["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for name, color in _COLORS.items()
    ]
    return panel


def _alerts() -> Json:
    """Alerts as Prometheus has them."""
    expr = 'max by (alertname, severity) (ALERTS{alertname=~"RL.+",alertstate="firing",run=~"$run"})'
    return table(
        "Alerts that fire",
        [Query(expr, "", instant=True, table=True)],
        "Alerts of this run that fire now. A click on a name opens its runbook.",
        [
            {
                "matcher": {"id": "byName", "options": "alertname"},
                "properties": [{"id": "links", "value": [_runbook()]}],
            },
            {"matcher": {"id": "byName", "options": "Value"}, "properties": [{"id": "custom.hidden", "value": True}]},
        ],
    )


def _runbook() -> Json:
    return {"title": "Runbook", "url": f"{RUNBOOKS}/${{__value.raw}}.md", "targetBlank": True}


def _conditions() -> Json:
    """What has begun, with its step, value and limit."""
    queries = [
        Query(f"max by (condition, severity) ({name}{{{ZERO}}})", "", instant=True, table=True)
        for name in (
            "rl_condition_last_event_step",
            "rl_condition_last_event_value",
            "rl_condition",
            "rl_condition_events_total",
        )
    ]
    limit = f"rl_threshold{{{ZERO}}} and on (run, condition, severity) rl_condition_last_event_step{{{ZERO}}}"
    queries.append(Query(f"max by (condition, severity) ({limit})", "", instant=True, table=True))
    panel = table(
        "Conditions that have begun",
        queries,
        described(NAMED["rl_condition"]),
    )
    names = ("step", "value", "holds", "times", "limit")
    renamed = {f"Value #{chr(ord('A') + i)}": name for i, name in enumerate(names)}
    panel["transformations"][1]["options"]["renameByName"] = renamed
    return panel


def speed(page: Page) -> None:
    """Is it fast?"""
    page.row("Speed")
    steps = NAMED["rl_step_duration_seconds"]
    measured = f"rl_step_duration_seconds_sum{{{ZERO}}}", f"rl_step_duration_seconds_count{{{ZERO}}}"
    mean = " / ".join(f"sum by (run) (rate({name}[$__rate_interval]))" for name in measured)
    page.add(timeseries("Step time", [Query(mean, "measured"), gauge("rl_step_time_seconds", legend="logged")], steps))
    page.add(
        timeseries("Phases of the last step", [gauge("rl_phase_time_seconds", "phase")], NAMED["rl_phase_time_seconds"])
    )
    tokens = Query(f"sum by (run) (rate(rl_tokens_total{{{ZERO}}}[$__rate_interval]))", "tokens per second")
    prompts = Query(f"sum by (run) (rate(rl_episodes_total{{{ZERO}}}[$__rate_interval]))", "episodes per second")
    page.add(timeseries("Throughput", [tokens, prompts], NAMED["rl_tokens_total"], unit="short"))
    page.add(heatmap("Duration of steps", steps))
    now = Query(f"max by (run, phase) (rl_phase{{{ZERO}}})", "{{phase}}")
    page.add(timeseries("Phase under way", [now], NAMED["rl_phase"]))
    page.add(timeseries("Step", [gauge("rl_step", legend="step")], NAMED["rl_step"]))


def truth(page: Page) -> None:
    """What a framework would hide."""
    page.row("Truth")
    bad = f"sum by (run, metric, kind) (increase(rl_nonfinite_values_total{{{select()}}}[$__rate_interval])) > 0"
    page.add(
        timeseries(
            "NaN and infinite values", [Query(bad, "{{metric}} {{kind}}")], without_range("rl_nonfinite_values_total")
        ),
        8,
    )
    none = f"sum by (run, metric) (increase(rl_undefined_values_total{{{select()}}}[$__rate_interval])) > 0"
    page.add(timeseries("Undefined values", [Query(none, "{{metric}}")], NAMED["rl_undefined_values_total"]), 8)
    lost = f"max by (signal, cause, reason) (rl_signal_unavailable_info{{{ZERO}}})"
    panel = table(
        "Signals that this run does not have",
        [Query(lost, "", instant=True, table=True)],
        described(NAMED["rl_signal_unavailable_info"]),
        [{"matcher": {"id": "byName", "options": "Value"}, "properties": [{"id": "custom.hidden", "value": True}]}],
    )
    page.add(panel, 8)
