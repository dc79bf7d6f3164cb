"""Distance of a run from its alerts: the number nearest to its limit, as a share of the limit."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.boxes import GREEN, RED, YELLOW, stat
from scripts.pack.dashboards.frame import RUN, ZERO, Json
from scripts.pack.dashboards.panels import Query, described, timeseries

_METRIC = NAMED["rl_nearest_limit_fraction"]
_TEXT = f"{described(_METRIC)} What is far beyond is cut off."
_ABSENT = "no limit is known yet: some are measured with the first steps"


def now() -> Json:
    """Return the panel of how near the run is."""
    query = Query(_nearest(10), "share")
    return stat(
        "Nearest to an alert",
        query,
        _TEXT,
        unit="percentunit",
        steps=((GREEN, None), (YELLOW, 0.8), (RED, 1.0)),
        none="no data, or no limit yet",
    )


def over_time() -> Json:
    """Return the panel of how near the run was, and by which number; higher shares would press the others flat."""
    query = Query(_nearest(3, "signal"), "{{signal}}")
    return timeseries("Nearest to an alert, by number", [query], _METRIC, absent=_ABSENT, description=_TEXT)


def _nearest(most: int, *by: str) -> str:
    return f"clamp_max(max by ({', '.join((RUN, *by))}) ({_METRIC.series}{{{ZERO}}}), {most})"
