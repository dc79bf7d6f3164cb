"""Any series of a run: one to choose, over time and steps, and all of them in a table. A new metric is here at once."""

from __future__ import annotations

from scripts.pack.dashboards.boxes import Column, table
from scripts.pack.dashboards.by_step import over_steps
from scripts.pack.dashboards.frame import RUN, Page, select
from scripts.pack.dashboards.panels import Query, timeseries, without_range

NAMES = '__name__=~"(rl|rlexporter)_.+",__name__!~".+_(bucket|info)"'
"""A matcher of all series but for buckets and for texts."""
_CHOSEN = select('__name__="$series"', 'rank="0"')
_ALL = select(NAMES, 'rank="0"')


def build(page: Page) -> None:
    """Add the panels to ``page``."""
    shown = without_range("rl_step")
    text = "The series that is chosen at the top of the page; a counter as its total."
    absent = "this run does not have the series: choose another one at the top of the page"
    over_time = [Query(f"{{{_CHOSEN}}}", "$series")]
    page.add(timeseries("$series over time", over_time, shown, unit="none", description=text, absent=absent), 12, 9)
    page.add(over_steps("$series over the steps", f"max by ({RUN}) ({{{_CHOSEN}}})", shown, text), 12, 9)
    page.add(
        table(
            "Every series",
            [Column("value", f"{{{_ALL}}}", {"decimals": 4})],
            "What the process of rank 0 serves now, but for buckets; docs/metrics.md says what each series means.",
            labels={"__name__": {}},
            none="no process serves this run now",
        ),
        24,
        12,
    )
