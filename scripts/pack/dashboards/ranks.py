"""Dashboard of a run's ranks side by side: which is slow, behind, or sees what the others do not?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog.algorithms import GRPO, PPO, PPO_LEGACY, RLOO
from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Group, Kind, Metric, RankScope
from scripts.pack.dashboards import variables
from scripts.pack.dashboards.boxes import GREEN, IN_PLACE, ORANGE, RED, STATUS_PAGE, YELLOW, Column, stat, table
from scripts.pack.dashboards.frame import RUN, Json, Page, dashboard, select
from scripts.pack.dashboards.panels import (
    Query,
    capital,
    described,
    grown,
    mean,
    timeseries,
    without_range,
    words,
)
from scripts.pack.recording_rules import OWN_WORK

UID = "rlexporter-ranks"
OF = select('rank=~"$rank"')
_TAPPED = {GRPO, RLOO, PPO, PPO_LEGACY}
"""The algorithms that ranks are watched for; what only others log has no panel here."""
_OF_THE_PROCESS = (Group.SPEED, Group.RUN, Group.PROGRESS, Group.EXPORTER)
_ALONE = "Only ranks that serve are here: rank 0 does by itself, others where they are asked to"


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    page.row("Ranks")
    _numbers(page)
    page.row("Stragglers")
    step = Query(f"max by ({RUN}, rank) (rl_step{{{OF}}})", "rank {{rank}}")
    page.add(timeseries("Step time", [Query(_pace(), "rank {{rank}}")], NAMED["rl_step_duration_seconds"], window=True))
    work = Query(_work(), "rank {{rank}}")
    shown = NAMED["rl_phase_seconds_total"]
    page.add(timeseries("Generation and rewards, share of the time", [work], shown, unit="percentunit", window=True))
    page.add(timeseries("Step", [step], NAMED["rl_step"]))
    phases = Query(f"max by ({RUN}, rank, phase) (rl_phase_time_seconds{{{OF}}})", "rank {{rank}} {{phase}}")
    page.add(timeseries("Phases of the last step", [phases], NAMED["rl_phase_time_seconds"]), 12)
    now = Query(f"max by ({RUN}, rank, phase) (rl_phase{{{OF}}}) > 0", "rank {{rank}} {{phase}}")
    page.add(timeseries("Phase under way", [now], NAMED["rl_phase"], absent="no phase is under way"), 12)
    page.row("What one rank sees and others do not")
    _differences(page, catalog)
    return dashboard(
        UID,
        "RL training: ranks",
        "Stragglers, the spread between ranks, and NaN that one rank sees. Rank 0 serves by default; the others when "
        "asked.",
        page.panels,
        variables=variables.common(variables.run(), variables.rank(), variables.window(), variables.apart()),
    )


def _numbers(page: Page) -> None:
    serving = Query(f"count by ({RUN}) (count by ({RUN}, rank) (rl_step_duration_seconds_count{{{OF}}}))", "ranks")
    page.add(stat("Ranks that serve", serving, _ALONE + "."), 4, 5)
    behind = Query(f"max by ({RUN}) (rl_step{{{OF}}}) - min by ({RUN}) (rl_step{{{OF}}})", "steps")
    late = ((GREEN, None), (ORANGE, 2.0))
    page.add(stat("Last behind first, in steps", behind, described(NAMED["rl_step"]), steps=late), 4, 5)
    lag = Query(f"max by ({RUN}) ({_work()}) - min by ({RUN}) ({_work()})", "lag")
    text = (
        "Share of the time for which the fastest rank waits for the slowest one in generation and rewards: GRPO, RLOO."
    )
    slow = ((GREEN, None), (YELLOW, 0.1), (ORANGE, 0.25))
    page.add(stat("Waiting for the slowest rank", lag, text, unit="percentunit", steps=slow), 4, 5)
    nan = f"sum by ({RUN}, rank) (rl_nonfinite_values_total{{{OF}}})"
    bad = Query(f"count by ({RUN}) ({nan} > 0) or 0 * max by ({RUN}) (rl_step{{{OF}}})", "ranks")
    any_bad = ((GREEN, None), (RED, 1.0))
    page.add(stat("Ranks with NaN", bad, described(NAMED["rl_nonfinite_values_total"]), steps=any_bad), 4, 5)
    where = table(
        "Processes",
        [Column("step", f"max by ({RUN}, rank, instance) (rl_step{{{OF}}})")],
        "A click on an instance opens its status page.",
        labels={"rank": {}, "instance": {"links": [STATUS_PAGE]}, **IN_PLACE},
        none="no process serves this run now",
    )
    page.add(where, 8, 5)


def _work() -> str:
    """Return the share of the time that each rank works by itself, before ranks wait for each other."""
    return f"sum by ({RUN}, rank) (rate(rl_phase_seconds_total{{{OF},{OWN_WORK}}}[$__rate_interval]))"


def _pace() -> str:
    total, count = (
        f"sum by ({RUN}, rank) (rate(rl_step_duration_seconds_{part}{{{OF}}}[$__rate_interval]))"
        for part in ("sum", "count")
    )
    return f"({total} / ({count} > 0))"


def _differences(page: Page, catalog: Sequence[Metric]) -> None:
    values = f"sum by ({RUN}, rank, metric) {grown('rl_nonfinite_values_total', OF)} > 0"
    query = Query(values, "rank {{rank}} {{metric}}")
    shown = without_range("rl_nonfinite_values_total")
    page.add(timeseries("NaN and infinite values", [query], shown, window=True, absent="every value was a number"))
    for metric in catalog:
        if metric.scope is not RankScope.RANK or metric.group in _OF_THE_PROCESS or metric.labels:
            continue
        if metric.keys and _TAPPED.isdisjoint(name for key in metric.keys for name in key.algorithms):
            continue
        query = Query(_value(metric), "rank {{rank}}")
        title = capital(words(metric.series)) + (", mean" if metric.kind is Kind.HISTOGRAM else "")
        page.add(timeseries(title, [query], metric, window=metric.kind is not Kind.GAUGE))


def _value(metric: Metric) -> str:
    """Return an expression by rank: the value of a gauge, the rate of a counter, the mean of a histogram."""
    if metric.kind is Kind.GAUGE:
        return f"max by ({RUN}, rank) ({metric.series}{{{OF}}})"
    if metric.kind is Kind.COUNTER:
        return f"sum by ({RUN}, rank) (rate({metric.series}{{{OF}}}[$__rate_interval]))"
    return mean(metric, OF, "rank")
