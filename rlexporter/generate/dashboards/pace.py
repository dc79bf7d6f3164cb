"""Last rows of the dashboard of a run: is it fast, and what would a framework have hidden?"""

from __future__ import annotations

from rlexporter.catalog import NAMED
from rlexporter.generate.dashboards.boxes import Column, table
from rlexporter.generate.dashboards.frame import ZERO, Page, select
from rlexporter.generate.dashboards.overview import step_time
from rlexporter.generate.dashboards.panels import Query, described, grown, heatmap, rate, timeseries, without_range


def speed(page: Page) -> None:
    """Add the row on speed."""
    page.row("Is it fast?")
    steps = NAMED["rl_step_duration_seconds"]
    page.add(timeseries("Step time", step_time(), steps, window=True, absent="No step has ended in this time"))
    shown = NAMED["rl_phase_time_seconds"]
    page.add(timeseries("Phases of the last step", [_phases("!~")], shown))
    tokens = rate("rl_tokens_total", "tokens per second")
    page.add(timeseries("Tokens per second", [tokens], NAMED["rl_tokens_total"], unit="short", window=True))
    page.add(heatmap("Duration of steps", steps), 6)
    now = Query(f"max by (run, phase) (rl_phase{{{ZERO}}}) == 1", "{{phase}}")
    page.add(timeseries("Phase under way", [now], NAMED["rl_phase"], stack=True, absent="No phase is under way"), 6)
    page.add(timeseries("Last evaluation, last checkpoint", [_phases("=~")], shown, absent="None yet"), 6)
    episodes = [rate("rl_episodes_total", "episodes per second"), rate("rl_steps_total", "steps per second")]
    page.add(
        timeseries("Steps and episodes per second", episodes, NAMED["rl_steps_total"], unit="short", window=True), 6
    )


def _phases(sign: str) -> Query:
    """Return a query of the phases in or between steps, by ``sign``: each keeps its time until it comes again."""
    of = select('rank="0"', f'phase{sign}"eval|save"')
    return Query(f"max by (run, phase) (rl_phase_time_seconds{{{of}}})", "{{phase}}")


def truth(page: Page) -> None:
    """Add the row on values that a framework would hide."""
    page.row("Is it true? What a framework would hide")
    bad, none = grown("rl_nonfinite_values_total", select()), grown("rl_undefined_values_total", select())
    page.add(
        timeseries(
            "NaN and infinite values",
            [Query(f"sum by (run, metric, kind) {bad} > 0", "{{metric}} {{kind}}")],
            without_range("rl_nonfinite_values_total"),
            window=True,
            absent="None: every value was a number",
        )
    )
    page.add(
        timeseries(
            "Undefined values",
            [Query(f"sum by (run, metric) {none} > 0", "{{metric}}")],
            NAMED["rl_undefined_values_total"],
            window=True,
            absent="None: every value was given",
        )
    )
    lost = f"max by (signal, cause, reason) (rl_signal_unavailable_info{{{ZERO}}})"
    panel = table(
        "Signals that this run does not have",
        [Column("one", lost)],
        described(NAMED["rl_signal_unavailable_info"]),
        labels={"signal": {}, "cause": {}, "reason": {}},
        hidden=("one",),
        none="Every signal can be seen, or nothing looks at the tensors of this run",
    )
    page.add(panel)
