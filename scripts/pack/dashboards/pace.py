"""Is it fast, and is anything hidden? Step time, phases and throughput; what a framework would not show."""

from __future__ import annotations

from rlexporter.catalog.metrics import NAMED
from scripts.pack.dashboards.boxes import Column, table
from scripts.pack.dashboards.curves import curve
from scripts.pack.dashboards.frame import ZERO, Page, select
from scripts.pack.dashboards.linked import linked
from scripts.pack.dashboards.panels import Query, described, grown, rate, timeseries, without_range


def speed(page: Page) -> None:
    """Add the row on speed."""
    page.add(curve("step time"), 6)
    phases = Query(f"max by (run, phase) (rl_phase_time_seconds{{{ZERO}}})", "{{phase}}")
    page.add(timeseries("Phases of the last step", [phases], NAMED["rl_phase_time_seconds"], stack=True), 6)
    tokens = [rate(f"rl_{each}_total", each) for each in ("tokens", "episodes", "steps")]
    shown = NAMED["rl_tokens_total"]
    page.add(timeseries("Tokens, episodes and steps per second", tokens, shown, unit="short", window=True), 6)
    now = Query(f"max by (run, phase) (rl_phase{{{ZERO}}}) == 1", "{{phase}}")
    page.add(timeseries("Phase under way", [now], NAMED["rl_phase"], stack=True, absent="None: between two steps"), 6)


def truth(page: Page) -> None:
    """Add the row on values that a framework would hide."""
    bad, none = grown("rl_nonfinite_values_total", select()), grown("rl_undefined_values_total", select())
    nonfinite = timeseries(
        "NaN and infinite values",
        [Query(f"sum by (run, metric, kind) {bad} > 0", "{{metric}} {{kind}}")],
        without_range("rl_nonfinite_values_total"),
        window=True,
        absent="No NaN was counted; or no data in this range",
    )
    page.add(linked("NaN and infinite values", nonfinite))
    page.add(
        timeseries(
            "Values that were not given",
            [Query(f"sum by (run, metric) {none} > 0", "{{metric}}")],
            NAMED["rl_undefined_values_total"],
            window=True,
            absent="No value was missing; or no data in this range",
        )
    )
    lost = f"max by (signal, cause, reason) (rl_signal_unavailable_info{{{ZERO}}})"
    panel = table(
        "Signals that this run does not have",
        [Column("one", lost)],
        described(NAMED["rl_signal_unavailable_info"]),
        labels={"signal": {}, "cause": {}, "reason": {}},
        hidden=("one",),
        none="Every signal can be seen, or nothing looks at the tensors; or no data in this range",
    )
    page.add(panel)
