"""The process of a run: its numbers at a glance, its conditions, its settings."""

from __future__ import annotations

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards import stability, state
from scripts.pack.dashboards.boxes import (
    COLORED,
    GRAY,
    GREEN,
    IN_PLACE,
    RED,
    SEVERITY,
    Column,
    info,
    link,
    said,
    stat,
    table,
    words,
)
from scripts.pack.dashboards.frame import RUN, ZERO, Json, Page, select
from scripts.pack.dashboards.panels import Query, described, gauge

_ANY = select()
"""Matchers for all ranks, since a NaN is judged on the rank that sees it."""
_LAST_STEP = f"max by ({RUN}) (last_over_time(rl_last_step_timestamp_seconds{{{ZERO}}}[$__range]))"
_GPU_HOURS = f"max by ({RUN}) (rl:run_gpu_seconds{{{_ANY}}}) / 3600"


def numbers(page: Page) -> None:
    """Add the numbers at a glance to ``page``."""
    hidden = f"sum by ({RUN}) (rl_nonfinite_values_total{{{_ANY}}}) or 0 * max by ({RUN}) (rl_run_info{{{ZERO}}})"
    step, planned = gauge("rl_step"), gauge("rl_steps_planned")
    state_of = (
        "failed: train() raised; preempted: SIGTERM; stopped: Ctrl-C or sys.exit; unreachable: it was running, and is "
        "not seen any more."
    )
    done = Query(f"{step.expr} / {planned.expr}", "done")
    saved, good = gauge("rl_last_checkpoint_step", legend="last"), gauge("rl_last_good_checkpoint_step", legend="good")
    saved_text = f"{NAMED['rl_last_checkpoint_step'].help} Good: {described(NAMED['rl_last_good_checkpoint_step'])}"
    spent = "GPU hours of the newest attempt."
    for panel in (
        said("State", state.of_runs(), ("state",), state_of, mappings=[state.mapping()], instant=True),
        stat("Algorithm", Query(_newest(), "{{algorithm}}"), _ALGORITHM, text="name", links=[_PAGE]),
        stat("Step", step, described(NAMED["rl_step"]), beside=[done], shares=("done",)),
        stat("Since the last step", Query(f"time() - {_LAST_STEP}", "age"), _AGE, unit="s"),
        stat("Checkpoint of step", saved, saved_text, beside=[good], none="no data, or none yet"),
        stability.now(),
        stat("NaN and infinite", Query(hidden, "values"), _NAN, steps=((GREEN, None), (RED, 1.0))),
        stat("GPU hours", Query(_GPU_HOURS, "hours"), spent, unit="h", none="no data, or no GPU"),
    ):
        page.add(panel, 3, 4)


_ALGORITHM = "A click opens the status page of the newest process."
_PAGE = link("Status page of the process", "http://${__field.labels.instance}/", away=True)


def _newest() -> str:
    """Return an expression for the process that began last in the time that is shown, with its algorithm."""
    info, began = (
        f"max by ({by}) (last_over_time({name}{{{ZERO}}}[$__range] @ end()))"
        for name, by in (
            ("rl_run_info", f"{RUN}, instance, algorithm"),
            ("rl_run_start_timestamp_seconds", f"{RUN}, instance"),
        )
    )
    return f"topk by ({RUN}) (1, {info} * on ({RUN}, instance) group_left () {began})"


_AGE = described(NAMED["rl_last_step_timestamp_seconds"])
_NAN = described(NAMED["rl_nonfinite_values_total"])


def conditions(page: Page) -> None:
    """Add what has begun, and how near each signal is to its limits, to ``page``."""
    page.add(_begun(), 12, 9)
    page.add(stability.over_time(), 12, 9)


def _begun() -> Json:
    by = f"max by ({RUN}, condition, severity, rank)"
    yes = [words({"0": ("no", GRAY), "1": ("yes", RED)})]
    columns = [
        Column("holds", f"{by} (rl_condition{{{_ANY}}})", {"mappings": yes, "custom__cellOptions": COLORED}),
        Column("last began in step", f"{by} (rl_condition_last_event_step{{{_ANY}}})"),
        Column("value then", f"{by} (rl_condition_last_event_value{{{_ANY}}})", {"decimals": 3}),
        Column("limit then", f"{by} (rl_condition_last_event_threshold{{{_ANY}}})", {"decimals": 3}),
        Column("times", f"sum by ({RUN}, condition, severity, rank) (rl_condition_events_total{{{_ANY}}})"),
    ]
    index = [link("What it means", f"{RUNBOOKS}/README.md", away=True)]
    return table(
        "Conditions that have begun",
        columns,
        described(NAMED["rl_condition"]),
        labels={"condition": {"links": index}, "severity": SEVERITY, "rank": {}, **IN_PLACE},
        sort="last began in step",
        none="no condition has begun",
    )


def settings(page: Page) -> None:
    """Add the process, and the numeric settings of its trainer, to ``page``."""
    names = ("instance", "attempt", "trainer", "model", "world_size", "trl")
    text = NAMED["rl_run_info"].help + " A click on an instance opens its status page."
    series = f"rl_run_info{{{ZERO}}}"
    page.add(info("Process", names, series, text, none="no process serves this run now"), 14, 9)
    page.add(
        table(
            "Settings",
            [Column("value", f"max by ({RUN}, name) (rl_hyperparameter{{{ZERO}}})")],
            described(NAMED["rl_hyperparameter"]),
            labels={"name": {}, **IN_PLACE},
            none="the trainer has no settings that are numbers",
        ),
        10,
        9,
    )
