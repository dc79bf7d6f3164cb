"""Dashboard of all runs, a row each, those first that need somebody: how are they, whose, and what do they cost?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.generate import IDENTITY
from rlexporter.model.metric import Metric
from scripts.pack.dashboards import compare, state, variables, verdict
from scripts.pack.dashboards.boxes import (
    COLORED,
    GRAY,
    GREEN,
    HIDDEN,
    IN_PLACE,
    OPEN_RUN,
    ORANGE,
    RED,
    STATUS_PAGE,
    Column,
    panel_link,
    stat,
    table,
)
from scripts.pack.dashboards.by_step import named
from scripts.pack.dashboards.families import with_dashboard
from scripts.pack.dashboards.frame import RANK_0, RUN, Json, Page, dashboard, select
from scripts.pack.dashboards.panels import Query, described, limits, timeseries, without_range

UID = "rlexporter-fleet"

_ALL = select()
_MAIN = select(RANK_0)
_ASKED = "&".join(f"${{{name}:queryparam}}" for name in ("run", *(each for each in IDENTITY if each != "run")))
_COMPARE = f"/d/{compare.UID}?{_ASKED}&${{datasource:queryparam}}&${{__url_time_range}}"
_STEPS = tuple(f"increase(rl_step_duration_seconds_{part}{{{_MAIN}}}[$__range])" for part in ("sum", "count"))
_PACE = f"max by ({RUN}) ({_STEPS[0]} / ({_STEPS[1]} > 0)) or max by ({RUN}) (rl_step_time_seconds{{{_MAIN}}})"
_SLOPES = tuple(f"deriv({name}{{{_MAIN}}}[$__range])" for name in ("rl_reward_mean", "rl_step"))
_SLOPE = f"100 * max by ({RUN}) ({_SLOPES[0]} / ({_SLOPES[1]} > 0))"
_SPENT, _LOST = (
    f"max by ({RUN}) ({name}{{{_ALL}}}) / 3600" for name in ("rl:run_gpu_seconds", "rl:run_gpu_seconds_since_critical")
)
_COMPARED = (
    ("Reward", "rl_reward_mean"),
    ("KL to the reference, per token", "rl_kl_per_token"),
    ("Entropy", "rl_entropy_per_token"),
    ("Completion length", "rl_completion_length_mean"),
)


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    page.row("Runs")
    for number, title, color in ((2, "Act", RED), (1, "Look", ORANGE), (0, "Fine", GREEN)):
        page.add(_count(title, number, color), 3, 4)
    page.add(_running(), 3, 4)
    page.add(_lost(), 3, 4)
    total = _now(f"sum(rate(rl_tokens_total{{{_MAIN}}}[$__rate_interval]))", "tokens per second")
    page.add(stat("Tokens per second", total, described(NAMED["rl_tokens_total"]), unit="short"), 3, 4)
    page.add(_hours("GPU hours", _SPENT, "GPU hours that the runs have used, each since it was last started."), 3, 4)
    lost = "Those of them that were spent since the first critical alert of a run that still fires."
    page.add(_hours("GPU hours wasted", _LOST, lost, ORANGE), 3, 4)
    page.add(_runs(), 24, 12)
    page.row("Side by side", collapsed=True)
    for title, name in _COMPARED:
        query = Query(named(f"max by ({RUN}) ({name}{{{_MAIN}}})"), "{{run}}")
        page.add(timeseries(title, [query], without_range(name)), 6)
    return dashboard(
        UID,
        "RL training: fleet",
        "All runs: verdict, cause, owner, age, pace, reward and cost; a click on a run opens it.",
        page.panels,
        variables=variables.common(variables.run(multi=True)),
    )


def _now(expr: str, legend: str) -> Query:
    """Return a query of a number over all runs as it is at the end: of the time before, nothing is drawn."""
    return Query(f"{expr} or vector(0)", legend, instant=True)


def _count(title: str, number: int, color: str) -> Json:
    query = _now(f"count(({verdict.word()}) == {number})", "runs")
    text = f"Runs with the verdict {title.lower()}, by the conditions of their newest attempt."
    return stat(title, query, text, steps=((GRAY, None), (color, 1.0)))


def _running() -> Json:
    matchers = select('state="running"')
    query = _now(f"count(count by ({RUN}) (rl:run_state{{{matchers}}}))", "runs")
    return stat("Running", query, "Runs whose newest process trains.", steps=((GRAY, None), (GREEN, 1.0)))


def _lost() -> Json:
    failed, alive = (
        f"rl:run_last_seen_timestamp_seconds{{{select(state)}}}"
        for state in ('state="failed"', 'state=~"starting|running"')
    )
    query = _now(f"count(max by ({RUN}) ({failed} or {alive} < time() - 120))", "runs")
    text = "Runs of the last day that ended with an exception, or vanished while they trained, and are not back."
    return stat("Failed or gone", query, text, steps=((GRAY, None), (RED, 1.0)))


def _hours(title: str, of_each: str, text: str, color: str = GRAY) -> Json:
    query = _now(f"sum({of_each})", "hours")
    return stat(title, query, text, unit="h", steps=((GRAY, None), (color, 0.1)))


_TREND = limits((RED, None), (GRAY, -0.001), (GREEN, 0.001))
_ORDER = ("run", "verdict", "condition", "team", "user", "state", "age", "step", "done", "step time", "reward")


def _runs() -> Json:
    """Return a table with a row per run; the values of labels are columns too."""
    labels: dict[str, Mapping[str, object]] = {
        "run": {"links": [OPEN_RUN], "custom__width": 200},
        "condition": verdict.CAUSE,
        "state": state.LOOK,
        **IN_PLACE,
        "algorithm": {},
        "model": {},
        "job": {},
        "dashboard": HIDDEN,
        "instance": {"links": [STATUS_PAGE]},
    }
    made = table(
        "Runs",
        list(_columns()),
        "One row a run, those first that need somebody, with those that are gone but were there in the time that is "
        "shown. A click on a run opens it, one on its instance the status page. Cause: what the verdict names first. "
        "Age: since the last step. Reward trend: how much the reward gains in 100 steps, over the time that is shown. "
        "GPU hours: what the run has used since it was last started; wasted: those since its first critical alert "
        "that still fires. Team and user are there where RLEXPORTER_LABELS sets them.",
        labels=labels,
        hidden=("info", "where", "why", "in state"),
        order=(*_ORDER, "reward trend", "GPU hours", "wasted"),
        sort="verdict",
        none="no run is scraped",
    )
    made["links"] = [panel_link("Compare the runs that are chosen, by step", _COMPARE)]
    return made


def _columns() -> tuple[Column, ...]:
    age = f"time() - max by ({RUN}) (last_over_time(rl_last_step_timestamp_seconds{{{_MAIN}}}[$__range]))"
    step, planned = (f"max by ({RUN}) ({name}{{{_MAIN}}})" for name in ("rl_step", "rl_steps_planned"))
    reward = f"max by ({RUN}) (last_over_time(rl_reward_mean{{{_MAIN}}}[$__range]))"
    colored = {"custom__cellOptions": COLORED}
    return (
        Column("verdict", verdict.word(), {"mappings": [verdict.WORD], **colored}),
        Column("why", verdict.cause()),
        Column("info", _info()),
        Column("where", f"max by ({RUN}, instance) (rl_run_info{{{_MAIN}}})"),
        Column("in state", state.of_all()),
        Column("age", age, {"unit": "s"}),
        Column("step", f"max by ({RUN}) (last_over_time(rl_step{{{_MAIN}}}[$__range]))"),
        Column("done", f"{step} / {planned}", {"unit": "percentunit"}),
        Column("step time", _PACE, {"unit": "s"}),
        Column("reward", reward, {"decimals": 3}),
        Column("reward trend", _SLOPE, {"decimals": 3, "thresholds": _TREND, **colored}),
        Column("GPU hours", _SPENT, {"unit": "h"}),
        Column("wasted", _LOST, {"unit": "h", "thresholds": limits((GRAY, None), (ORANGE, 0.1)), **colored}),
    )


def _info() -> str:
    """Return an expression with what a run is, and the address of its dashboard, as labels."""
    names = (*IDENTITY, "algorithm", "model")
    return with_dashboard(f"last_over_time(rl_run_info{{{_MAIN}}}[$__range])", *names)
