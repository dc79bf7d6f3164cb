"""Dashboard of the exporter itself: what does it cost, and does it miss anything?"""

from __future__ import annotations

from collections.abc import Sequence

from rlexporter.catalog.metrics import NAMED
from rlexporter.model.metric import Group, Kind, Metric
from scripts.pack.dashboards import variables
from scripts.pack.dashboards.boxes import GREEN, IN_PLACE, ORANGE, RED, Column, info, stat, table
from scripts.pack.dashboards.by_step import named
from scripts.pack.dashboards.frame import RUN, ZERO, Json, Page, dashboard, select
from scripts.pack.dashboards.panels import Query, capital, described, grown, timeseries, words

UID = "rlexporter-exporter"
_OF = select()
_CLOCK = "rlexporter_time_seconds"
_ABOVE = ("rlexporter_observe_seconds_total", "rlexporter_record_seconds_total", _CLOCK)
"""What has a panel of its own."""
_OURS = f"and on (job, instance) rl_run_info{{{_OF}}}"
"""Join that keeps the targets of the runs: Prometheus' own series have job and instance, but no run."""


def build(catalog: Sequence[Metric]) -> Json:
    """Return the dashboard."""
    page = Page()
    page.row("Is it well?")
    _numbers(page)
    page.add(_judged(), 24, 8)
    page.row("Cost")
    _cost(page)
    page.row("What it does and misses")
    for metric in catalog:
        if metric.group is Group.EXPORTER and metric.kind in (Kind.GAUGE, Kind.COUNTER) and metric.series not in _ABOVE:
            page.add(_any(metric), 8, 6)
    page.row("Versions")
    page.add(_versions(), 24, 6)
    return dashboard(
        UID,
        "RL training: exporter",
        "The exporter's own cost, errors, scrapes and unmapped keys.",
        page.panels,
        variables=variables.common(variables.run(multi=True)),
    )


def _cost(page: Page) -> None:
    looking, writing = (
        named(f"sum by ({RUN}) (rate(rlexporter_{what}_seconds_total{{{_OF}}}[$__rate_interval]))")
        for what in ("observe", "record")
    )
    share = [Query(looking, "{{run}}: tensors"), Query(writing, "{{run}}: log lines and conditions")]
    metric = NAMED["rlexporter_observe_seconds_total"]
    page.add(timeseries("Share of the training thread's time", share, metric, unit="percentunit", absent=_UNSEEN), 12)
    for title, name, unit, text in _SEEN:
        query = Query(f'max by (instance) ({name}{{job=~"$job"}} {_OURS})', "{{instance}}")
        shown = NAMED["rlexporter_scrapes_total"]
        page.add(timeseries(title, [query], shown, unit=unit, description=text, absent=_UNSEEN), 6)


_SEEN = (
    ("Series", "scrape_samples_scraped", "short", "Samples in a scrape, as Prometheus counts them."),
    ("Duration of a scrape", "scrape_duration_seconds", "s", "How long a scrape takes, as Prometheus sees it."),
)


def _numbers(page: Page) -> None:
    errors = Query(f"sum(rlexporter_errors_total{{{_OF}}}) or {_SERVED}", "errors")
    red, orange = ((GREEN, None), (RED, 1.0)), ((GREEN, None), (ORANGE, 1.0))
    page.add(stat("Errors", errors, described(NAMED["rlexporter_errors_total"]), steps=red), 4, 4)
    unknown = Query(f"sum(rlexporter_unmapped_keys{{{_OF}}})", "keys")
    page.add(stat("Unmapped keys", unknown, described(NAMED["rlexporter_unmapped_keys"]), steps=orange), 5, 4)
    dropped = Query(f"sum(rlexporter_dropped_keys_total{{{_OF}}})", "values")
    page.add(stat("Dropped values", dropped, described(NAMED["rlexporter_dropped_keys_total"]), steps=orange), 5, 4)
    lost = Query(f"count(rl_signal_unavailable_info{{{select(_ERROR)}}}) or {_SERVED}", "signals")
    text = described(NAMED["rl_signal_unavailable_info"])
    page.add(stat("Signals lost by an error", lost, text, steps=red), 5, 4)
    clock = f"{_CLOCK}{{{_OF}}}"
    far = ((GREEN, None), (ORANGE, 30.0))
    ahead = Query(f"max(abs({clock} - timestamp({clock})))", "seconds")
    text = "How far the clock of a process is from that of Prometheus. " + NAMED[_CLOCK].help
    page.add(stat("Clock off by", ahead, text, unit="s", steps=far), 5, 4)


def _judged() -> Json:
    """Return a table of how many conditions cannot be judged in each run: all runs together say nothing of any."""
    return table(
        "Conditions that are not judged",
        [Column("not judged", f"count by ({RUN}) (rl_condition_judged{{{ZERO}}} == 0)")],
        f"Of each run, how many. {described(NAMED['rl_condition_judged'])}",
        labels={"run": {"custom__width": 200}, **IN_PLACE},
        sort="not judged",
        none="no run is scraped, or every condition is judged",
    )


_UNSEEN = "none of it yet"
_SERVED = f"0 * max(rl_run_info{{{_OF}}})"
"""0 where a run serves, and nothing where none does: silence is not health."""
_ERROR = 'cause="error"'


def _versions() -> Json:
    names = ("run", "rank", "instance", "version", "python", "prometheus_client", "fastapi")
    metric = NAMED["rlexporter_build_info"]
    return info("Versions", names, f"{metric.series}{{{_OF}}}", metric.help)


def _any(metric: Metric) -> Json:
    kept = ", ".join((RUN, *metric.labels))
    legend = " ".join("{{" + label + "}}" for label in ("run", *metric.labels))
    expr = f"max by ({kept}) ({metric.series}{{{_OF}}})"
    if metric.kind is Kind.COUNTER:
        expr = f"sum by ({kept}) ({grown(metric.series, _OF)})"
    return timeseries(capital(words(metric.series)), [Query(named(expr), legend)], metric, absent=_UNSEEN)
