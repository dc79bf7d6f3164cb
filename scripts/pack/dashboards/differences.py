"""Tables of what runs are, beside each other: their set-up and results, and the settings in which they differ."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.generate import IDENTITY, OWNERS
from scripts.pack.dashboards import state, verdict
from scripts.pack.dashboards.boxes import COLORED, HIDDEN, IN_PLACE, OPEN_RUN, Column, table
from scripts.pack.dashboards.by_step import named
from scripts.pack.dashboards.families import with_dashboard
from scripts.pack.dashboards.frame import RUN, ZERO, Json, select
from scripts.pack.dashboards.panels import described

_TEXTS = ("algorithm", "model", "trainer", "loss_type", "importance_sampling_level", "trl")
"""Labels of `rl_run_info` that say how a run was set up."""
_SET_UP = (*IDENTITY, *_TEXTS)


def _last(series: str, *, function: str = "last_over_time") -> str:
    return f"{function}({series}{{{ZERO}}}[$__range])"


_START = _last("rl_run_start_timestamp_seconds")
_NEWEST = f"and on (job, instance, {RUN}) ({_START} == on ({RUN}) group_left () max by ({RUN}) ({_START}))"
"""Restricts series to those of the newest process of each run: one that was resumed has had several."""


def runs() -> Json:
    """Return a table with a row a run: how it was set up, how far it came, and how well."""
    return table(
        "Runs",
        list(_columns()),
        "One row a run, as it was last seen in the time that is shown. A click on a run opens it. The reward is the "
        "last and the largest of those that were scraped; GPU hours are those since the run was last started.",
        labels={
            "run": {"links": [OPEN_RUN], "custom__width": 200},
            "condition": verdict.CAUSE,
            "state": state.LOOK,
            **IN_PLACE,
            **{name: {} for name in _TEXTS},
            "dashboard": HIDDEN,
        },
        hidden=("set-up", "why", "in state"),
        order=(
            "run",
            "verdict",
            "condition",
            *OWNERS,
            "state",
            "started",
            "step",
            "last reward",
            "best reward",
            "GPU hours",
        ),
        none="no run is chosen",
    )


def _columns() -> tuple[Column, ...]:
    best = _last("rl_reward_mean", function="max_over_time")
    hours = f"max by ({RUN}) (last_over_time(rl:run_gpu_seconds{{{select()}}}[$__range])) / 3600"
    return (
        Column("verdict", verdict.word(), {"mappings": [verdict.WORD], "custom__cellOptions": COLORED}),
        Column("why", verdict.cause()),
        Column("in state", state.of_runs()),
        Column("set-up", with_dashboard(f"{_last('rl_run_info')} {_NEWEST}", *_SET_UP)),
        Column("started", f"1000 * max by ({RUN}) ({_START})", {"unit": "dateTimeAsLocal"}),
        Column("step", f"max by ({RUN}) ({_last('rl_step')} {_NEWEST})"),
        Column("last reward", f"max by ({RUN}) ({_last('rl_reward_mean')} {_NEWEST})", {"decimals": 3}),
        Column("best reward", f"max by ({RUN}) ({best})", {"decimals": 3}),
        Column("GPU hours", hours, {"unit": "h"}),
    )


_SETTINGS = f"max by ({RUN}, name) ({_last('rl_hyperparameter')} {_NEWEST})"
_DIFFER = (
    f"max by (name) ({_SETTINGS}) != min by (name) ({_SETTINGS}) "
    f"or count by (name) ({_SETTINGS}) < scalar(count(count by ({RUN}) ({_SETTINGS})))"
)
_NAME = "setting"


def settings() -> Json:
    """Return a table of the numeric settings in which the runs differ, or which only some have: a column a run."""
    made = table(
        "Settings that differ",
        [Column("Value", named(f"{_SETTINGS} and on (name) ({_DIFFER})"))],
        f"{described(NAMED['rl_hyperparameter'])} Only those in which the runs that are chosen differ, or that only "
        "some of them have; settings that are words are in the table of runs.",
        labels={},
        none="they have the same settings",
    )
    made["fieldConfig"]["defaults"]["unit"] = "string"  # as it was written: 0.000001, not 0.00000100
    corner = "name\\run"
    made["transformations"] = [
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "run"}]}},
        {
            "id": "groupingToMatrix",
            "options": {"columnField": "run", "rowField": "name", "valueField": "Value", "emptyValue": "null"},
        },
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": corner}]}},
        {"id": "organize", "options": {"excludeByName": {}, "indexByName": {}, "renameByName": {corner: _NAME}}},
    ]
    return made
