"""Distance of a run from its alerts: the number nearest to its limit, as a share of the limit."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.boxes import GREEN, RED, YELLOW, stat
from scripts.pack.dashboards.frame import RUN, ZERO, Json
from scripts.pack.dashboards.panels import Query, described, timeseries

_METRIC = NAMED["rl_nearest_limit_fraction"]
_TEXT = f"{described(_METRIC)} What is far beyond is cut off."
_ABSENT = "no number comes near its limit; some limits are measured with the first steps"


def now() -> Json:
    """Return the panel of how near the run is."""
    # Of what was pushed, the number that was nearest before is still there for minutes.
    newest = f"topk by ({RUN}) (1, max by ({RUN}, signal) (timestamp({_METRIC.series}{{{ZERO}}})))"
    query = Query(f"{_nearest(10)} and on ({RUN}, signal) {newest}", "{{signal}}", instant=True)
    return stat(
        "Nearest to an alert",
        query,
        _TEXT,
        unit="percentunit",
        steps=((GREEN, None), (YELLOW, 0.8), (RED, 1.0)),
        text="value_and_name",
        none="no data, or nothing is near",
    )


def over_time() -> Json:
    """Return the panel of how near the run was, and by which number; higher shares would press the others flat."""
    query = Query(_nearest(3), "{{signal}}")
    return timeseries("Nearest to an alert, by number", [query], _METRIC, absent=_ABSENT, description=_TEXT)


def _nearest(most: int) -> str:
    return f"clamp_max(max by ({RUN}, signal) ({_METRIC.series}{{{ZERO}}}), {most})"
