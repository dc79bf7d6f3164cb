"""First row of a run: one verdict, its cause in words, and all that is wrong, as the rules of Prometheus find it."""

from __future__ import annotations

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.conditions import CONDITIONS
from scripts.pack.dashboards.boxes import GRAY, GREEN, ORANGE, RED, SEVERITY, Column, link, stat, table, words
from scripts.pack.dashboards.frame import FIRING, RANK_0, Json, Page, select
from scripts.pack.dashboards.panels import Query
from scripts.pack.outside import PROCESS_ALERTS

_NOTHING, _UNKNOWN = "none", "unknown"
WORD = words({"2": ("act", RED), "1": ("look", ORANGE), "0": ("fine", GREEN), "-1": ("not judged", GRAY)})
"""The words of the verdict's numbers."""
TITLE = "Is my run healthy?"
_RULES = "Not judged: the rules of rlexporter are not loaded, or have not run yet."


def word(by: str = "run", more: str = "") -> str:
    """Return an expression for the verdict on each run: 2 act, 1 look, 0 fine, -1 without our rules.

    ``by``: the labels that name a run; ``more``: matchers.
    """
    said = f"max by ({by}) (rl:run_verdict{{{_of(more)}}})"
    return f"{said} or 0 * {_seen(by, more)} or 0 * {_served(by, more)} - 1"


def cause(by: str = "run", more: str = "") -> str:
    """Return an expression with the condition that the verdict names for each run, as the label ``condition``."""
    found = f"max by ({by}, condition) (rl:run_cause{{{_of(more)}}})"
    seen, served = _seen(by, more), _served(by, more)
    nothing = f'label_replace({seen}, "condition", "{_NOTHING}", "", "") unless on ({by}) {found}'
    unknown = f'label_replace({served}, "condition", "{_UNKNOWN}", "", "") unless on ({by}) {seen}'
    return f"{found} or {nothing} or {unknown}"


def _of(*more: str) -> str:
    return select(*filter(None, more))


def _seen(by: str, more: str) -> str:
    return f"max by ({by}) (rl:run_last_seen_timestamp_seconds{{{_of(more)}}})"


def _served(by: str, more: str) -> str:
    return f"max by ({by}) (rl_run_info{{{_of(RANK_0, more)}}})"


def texts() -> Json:
    """Return the words for the names of conditions: what the runbooks call them, in the color of their worst limit."""
    found = {name: (alert.summary, RED) for name, alert in PROCESS_ALERTS.items()}
    for each in CONDITIONS:
        severe = any(limit.severity.value == "critical" for limit in each.limits)
        found[each.name] = (each.summary, RED if severe else ORANGE)
    return words({**found, _NOTHING: ("Nothing is wrong in what is judged.", GREEN), _UNKNOWN: (_RULES, GRAY)})


def build(page: Page) -> None:
    """Add the panels to ``page``."""
    text = "What the run says of itself, or that it has failed, hangs or is gone. The cause stands beside it."
    page.add(stat("Verdict", Query(word(), "verdict"), text, mappings=[WORD], fill=True), 4, 5)
    page.add(_why(), 9, 5)
    page.add(_wrong(), 11, 5)


def _why() -> Json:
    """Return the cause in words: of a string, so its query is a table and the field is chosen."""
    made = stat(
        "Why",
        Query(cause(), format="table"),
        "The likeliest cause of all that is wrong, as the run itself names it: the page at its own address says more.",
        mappings=[texts()],
        none=_RULES,
    )
    made["options"]["reduceOptions"]["fields"] = "/^condition$/"
    # Before Grafana 11.5 a table of a range has one condition after the other, and the last row is not the newest.
    made["transformations"] = [{"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Time"}]}}]
    made["options"]["text"] = {"valueSize": 22}
    return made


def _wrong() -> Json:
    """Return a table of the alerts that fire, with the step, value and limit of when they began."""
    severe = 'severity=~"critical|warning"'
    of = select(severe)
    by = "max by (condition, severity)"
    columns = [
        Column("firing", f"max by (alertname, condition, severity) (ALERTS{{{FIRING},{severe}}})"),
        Column("since step", f"{by} (rl:condition_step{{{of}}})", {"decimals": 0}),
        Column("value then", f"{by} (rl:condition{{{of}}})", {"decimals": 3}),
        Column("limit then", f"{by} (rl:condition_threshold{{{of}}})", {"decimals": 3}),
    ]
    runbook = link("Runbook: what it means, what to do", f"{RUNBOOKS}/${{__value.raw}}.md", away=True)
    return table(
        "Wrong now",
        columns,
        "The alerts of this run that fire. A click on one opens its runbook.",
        labels={"severity": SEVERITY, "alertname": {"links": [runbook]}, "condition": {}},
        hidden=("firing", "condition"),
        sort="since step",
        none="No alert fires; or no data in this range",
    )
