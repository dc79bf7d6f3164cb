"""The exporter itself: what does it cost, and does it miss anything?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards.frame import Json, Page, dashboard, run_variable, select
from rlexporter.generate.dashboards.panels import Query, described, stat, table, timeseries
from rlexporter.model import Group, Kind, Metric

UID = "rlexporter-exporter"


def build(catalog: Sequence[Metric]) -> Json:
    """The dashboard."""
    page = Page()
    page.row("Cost")
    looking = f"sum by (run) (rate(rlexporter_observe_seconds_total{{{select()}}}[$__rate_interval]))"
    writing = f"sum by (run) (rate(rlexporter_record_seconds_total{{{select()}}}[$__rate_interval]))"
    share = [Query(looking, "tensors"), Query(writing, "log lines and conditions")]
    page.add(
        timeseries(
            "Share of the training thread", share, NAMED["rlexporter_observe_seconds_total"], unit="percentunit"
        ),
        12,
    )
    scrapes = Query(f"sum by (run) (rate(rlexporter_scrapes_total{{{select()}}}[$__rate_interval]))", "{{run}}")
    page.add(timeseries("Scrapes per second", [scrapes], NAMED["rlexporter_scrapes_total"], unit="short"), 6)
    series = Query('max by (instance) (scrape_samples_scraped{job=~"$job"})', "{{instance}}")
    page.add(timeseries("Series in a scrape", [series], NAMED["rlexporter_scrapes_total"], unit="short"), 6)
    page.row("What is missed")
    for metric in catalog:
        if (
            metric.group is Group.EXPORTER
            and metric.kind in (Kind.GAUGE, Kind.COUNTER)
            and metric.series not in str(page.panels)
        ):
            page.add(_any(metric), 6, 6)
    judged = Query(f"count by (run) (rl_condition_judged{{{select()}}} == 0)", "conditions")
    page.add(stat("Conditions that cannot be judged", judged, described(NAMED["rl_condition_judged"])), 6, 6)
    page.row("Versions")
    info = Query(
        f"max by (instance, version, python, prometheus_client, fastapi) (rlexporter_build_info{{{select()}}})",
        "",
        instant=True,
        table=True,
    )
    page.add(table("Versions", [info], NAMED["rlexporter_build_info"].help), 24, 6)
    return dashboard(
        UID,
        "RL training: exporter",
        "The exporter's own cost, errors, scrapes and unmapped keys.",
        page.panels,
        variables=(run_variable(multi=True),),
    )


def _any(metric: Metric) -> Json:
    kept = ", ".join(("run", *metric.labels))
    legend = " ".join("{{" + label + "}}" for label in ("run", *metric.labels))
    expr = f"max by ({kept}) ({metric.series}{{{select()}}})"
    if metric.kind is Kind.COUNTER:
        expr = f"sum by ({kept}) (increase({metric.series}{{{select()}}}[$__rate_interval]))"
    words = metric.series.removeprefix("rlexporter_").removesuffix("_total").replace("_", " ")
    return timeseries(words[0].upper() + words[1:], [Query(expr, legend)], metric)
