"""Is it fast, and is anything hidden? Step time, phases and throughput; what a framework would not show."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.boxes import IN_PLACE, Column, table
from scripts.pack.dashboards.curves import curve
from scripts.pack.dashboards.frame import RUN, ZERO, Page, select
from scripts.pack.dashboards.linked import linked
from scripts.pack.dashboards.panels import (
    UNSEEN,
    Query,
    described,
    grown,
    on_the_right,
    rate,
    timeseries,
    without_range,
)


def speed(page: Page) -> None:
    """Add the row on speed."""
    page.add(curve("step time"), 6)
    spent = f"avg_over_time(rl_phase_time_seconds{{{ZERO}}}[$__rate_interval])"  # one step has a rollout, the next none
    phases = Query(f"max by ({RUN}, phase) ({spent})", "{{phase}}")
    shown = NAMED["rl_phase_time_seconds"]
    page.add(timeseries("Phases of a step, mean", [phases], shown, stack=True, window=True), 6)
    tokens = [rate(f"rl_{each}_total", each) for each in ("tokens", "episodes", "steps")]
    shown, right = NAMED["rl_tokens_total"], [on_the_right("steps", "short", "steps")]
    title = "Tokens, episodes and steps per second"
    page.add(timeseries(title, tokens, shown, unit="short", window=True, overrides=right), 6)
    now = Query(f"max by ({RUN}, phase) (rl_phase{{{ZERO}}}) == 1", "{{phase}}")
    page.add(
        timeseries(
            "Phase under way", [now], NAMED["rl_phase"], stack=True, absent="no phase is under way: between two steps"
        ),
        6,
    )


def truth(page: Page) -> None:
    """Add the row on values that a framework would hide."""
    bad, none = grown("rl_nonfinite_values_total", select()), grown("rl_undefined_values_total", select())
    nonfinite = timeseries(
        "NaN and infinite values",
        [Query(f"sum by ({RUN}, metric, kind) {bad} > 0", "{{metric}} {{kind}}")],
        without_range("rl_nonfinite_values_total"),
        window=True,
        absent="no NaN was counted",
    )
    page.add(linked("NaN and infinite values", nonfinite), 8, 6)
    page.add(
        timeseries(
            "Values that were not given",
            [Query(f"sum by ({RUN}, metric) {none} > 0", "{{metric}}")],
            NAMED["rl_undefined_values_total"],
            window=True,
            absent="no value was missing",
        ),
        8,
        6,
    )
    lost = f"max by ({RUN}, signal, cause) (rl_signal_unavailable_info{{{ZERO}}})"
    panel = table(
        "Signals that this run does not have",
        [Column("one", lost)],
        described(NAMED["rl_signal_unavailable_info"]),
        labels={"signal": {}, "cause": {}, **IN_PLACE},
        hidden=("one",),
        none=f"every signal can be seen; or {UNSEEN}",
    )
    page.add(panel, 8, 6)
