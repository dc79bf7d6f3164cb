"""The ranks of a run side by side: which of them is slow, behind, or sees what the others do not?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards.frame import Json, Page, dashboard, rank_variable, run_variable, select
from rlexporter.generate.dashboards.panels import Query, described, stat, timeseries, without_range
from rlexporter.model import Group, Kind, Metric, Scope

UID = "rlexporter-ranks"
OF = select('rank=~"$rank"')


def build(catalog: Sequence[Metric]) -> Json:
    """The dashboard."""
    page = Page()
    page.row("Ranks")
    serving = Query(f"count(count by (rank) (rl_step_duration_seconds_count{{{OF}}}))", "ranks")
    page.add(stat("Ranks that serve", serving, described(NAMED["rl_step_duration_seconds"])), 6, 4)
    behind = Query(f"max(rl_steps_total{{{OF}}}) - min(rl_steps_total{{{OF}}})", "steps")
    page.add(stat("Slowest behind fastest", behind, described(NAMED["rl_steps_total"])), 6, 4)
    bad = Query(f"count(sum by (rank) (rl_nonfinite_values_total{{{OF}}}) > 0) or vector(0)", "ranks")
    page.add(stat("Ranks with NaN", bad, described(NAMED["rl_nonfinite_values_total"])), 6, 4)
    pace = " / ".join(
        f"sum by (run, rank) (rate(rl_step_duration_seconds_{part}{{{OF}}}[$__rate_interval]))"
        for part in ("sum", "count")
    )
    page.add(
        stat("Spread of step time", Query(f"max({pace}) - min({pace})", "s"), "Slowest minus fastest rank.", unit="s"),
        6,
        4,
    )
    page.row("Speed")
    page.add(timeseries("Step time by rank", [Query(pace, "rank {{rank}}")], NAMED["rl_step_duration_seconds"]), 12)
    step = Query(f"max by (run, rank) (rl_step{{{OF}}})", "rank {{rank}}")
    page.add(timeseries("Step by rank", [step], NAMED["rl_step"]), 12)
    page.row("What one rank sees")
    values = f"sum by (run, rank, metric) (increase(rl_nonfinite_values_total{{{OF}}}[$__rate_interval])) > 0"
    page.add(
        timeseries(
            "NaN and infinite by rank",
            [Query(values, "rank {{rank}} {{metric}}")],
            without_range("rl_nonfinite_values_total"),
        ),
        12,
    )
    for metric in catalog:
        if metric.scope is Scope.RANK and metric.kind is Kind.GAUGE and metric.group not in (Group.SPEED, Group.RUN):
            query = Query(f"max by (run, rank) ({metric.series}{{{OF}}})", "rank {{rank}}")
            page.add(timeseries(_title(metric), [query], metric), 12)
    return dashboard(
        UID,
        "RL training: ranks",
        "Stragglers, the spread between ranks, and NaN that one rank sees. Rank 0 serves by default; the "
        "others when asked.",
        page.panels,
        variables=(run_variable(), rank_variable()),
    )


def _title(metric: Metric) -> str:
    words = metric.series.removeprefix("rl_").replace("_", " ")
    return f"{words[0].upper()}{words[1:]} by rank"
