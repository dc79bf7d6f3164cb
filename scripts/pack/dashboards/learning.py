"""Is it learning? The reward over time and over steps, each function's, and the same curves over steps."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.by_step import by_step
from scripts.pack.dashboards.curves import LOG, SHOWN, curve, described_with_limits, lines, series_of, value
from scripts.pack.dashboards.families import Family
from scripts.pack.dashboards.frame import Json, Page, select
from scripts.pack.dashboards.linked import linked
from scripts.pack.dashboards.panels import Query, capital, override, quantile, timeseries

_REWARD = SHOWN["reward"]


def build(page: Page, family: Family) -> None:
    """Add the panels of the row to ``page``."""
    page.add(_reward(), 6, 9)
    page.add(_over_step("reward", "Reward over the steps"), 6, 9)
    for title, names in family.learning:
        page.add(lines(title, names), 6, 9)
    for name in family.answers["learning"]:
        page.add(curve(name), 6, 9)


def over_steps(page: Page, family: Family) -> None:
    """Add each main curve over the steps to ``page``, but for the reward's."""
    for name in family.answers["stable"]:
        page.add(_over_step(name, f"{capital(name)} over the steps"), 6)


def _over_step(name: str, title: str) -> Json:
    """Return the panel of the number ``name`` over steps, without pauses and restarts, as W&B shows it."""
    return by_step(title, series_of(SHOWN[name]), log=name in LOG)


def _reward() -> Json:
    """Return the mean reward, in the band in which nine of ten rewards lie."""
    seen = NAMED["rl_reward_dist"]
    high, low = "95 %", "5 %"
    queries = [
        Query(value(_REWARD), "mean"),
        Query(quantile(seen, 0.95, select('rank="0"')), high),
        Query(quantile(seen, 0.05, select('rank="0"')), low),
    ]
    quiet = {"custom__lineWidth": 0, "color": {"mode": "fixed", "fixedColor": "blue"}}
    unseen = {"legend": True, "tooltip": False, "viz": False}
    overrides = [
        override("mean", color={"mode": "fixed", "fixedColor": "blue"}, custom__lineWidth=2),
        override(high, **quiet, custom__fillBelowTo=low, custom__fillOpacity=20, custom__hideFrom=unseen),
        override(low, **quiet, custom__hideFrom=unseen),
    ]
    text = f"{described_with_limits(NAMED['rl_reward_mean'])} The band: where nine of ten rewards lie."
    made = timeseries("Reward", queries, NAMED["rl_reward_mean"], window=True, overrides=overrides, description=text)
    return linked("reward", made)
