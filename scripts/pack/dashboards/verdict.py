"""First row of a run: one verdict, its cause in words, and all that is wrong, as the rules of Prometheus find it."""

from __future__ import annotations

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.conditions import CONDITIONS
from scripts.pack.dashboards import limits
from scripts.pack.dashboards.boxes import (
    COLORED,
    GRAY,
    GREEN,
    IN_PLACE,
    ORANGE,
    RED,
    SEVERITY,
    Column,
    link,
    stat,
    table,
    words,
)
from scripts.pack.dashboards.frame import FIRING, PLACE, RANK_0, RUN, Json, Page, select
from scripts.pack.dashboards.panels import Query, empty, timeseries, without_range
from scripts.pack.outside import PROCESS_ALERTS

_NOTHING, _UNKNOWN = "none", "unknown"
WORD = words({"2": ("act", RED), "1": ("look", ORANGE), "0": ("fine", GREEN), "-1": ("not judged", GRAY)})
"""The words of the verdict's numbers."""
TITLE = "Is my run healthy?"
_STANDING = words({"2": ("holds", RED), "1": ("eased", ORANGE), "0": ("over", GRAY)})
_SEVERE = 'severity=~"critical|warning"'
_OF = f"{PLACE}, condition, severity"
_FIRST = 'cause=""'
"""A matcher of incidents that are no symptoms of others."""
_RULES = "Not judged: the rules of rlexporter are not loaded, or have not run yet."


def word(more: str = "") -> str:
    """Return an expression for each run's verdict: 2 act, 1 look, 0 fine, -1 without our rules; ``more``: matchers."""
    said = f"max by ({RUN}) (rl:run_verdict{{{_of(more)}}})"
    return f"{said} or 0 * {_seen(more)} or 0 * {_served(more)} - 1"


def cause(more: str = "") -> str:
    """Return an expression with the condition that the verdict names for each run, as the label ``condition``."""
    found = f"max by ({RUN}, condition) (rl:run_cause{{{_of(more)}}})"
    seen, served = _seen(more), _served(more)
    nothing = f'label_replace({seen}, "condition", "{_NOTHING}", "", "") unless on ({RUN}) {found}'
    unknown = f'label_replace({served}, "condition", "{_UNKNOWN}", "", "") unless on ({RUN}) {seen}'
    return f"{found} or {nothing} or {unknown}"


def _of(*more: str) -> str:
    return select(*filter(None, more))


def _seen(more: str) -> str:
    return f"max by ({RUN}) (rl:run_last_seen_timestamp_seconds{{{_of(more)}}})"


def _served(more: str) -> str:
    return f"max by ({RUN}) (rl_run_info{{{_of(RANK_0, more)}}})"


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
    page.add(stat("Verdict", Query(word(), "verdict"), text, mappings=[WORD], fill=True), 4, 7)
    page.add(_why(), 8, 7)
    page.add(_number(), 12, 7)
    page.add(_wrong(), 24, 5)


def _why() -> Json:
    """Return the cause in words: of a string, so its query is a table and the field is chosen."""
    made = stat(
        "Why",
        Query(cause(), format="table"),
        "The likeliest cause of all that is wrong, as the run itself names it: the page at its own address says more.",
        mappings=[texts()],
        none=empty("the rules of rlexporter are not loaded"),
    )
    made["options"]["reduceOptions"]["fields"] = "/^condition$/"
    # Before Grafana 11.5 a table of a range has one condition after the other, and the last row is not the newest.
    made["transformations"] = [{"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Time"}]}}]
    made["options"]["text"] = {"valueSize": 22}
    return made


def _number() -> Json:
    """Return the curve of the number that the cause is judged by, else of the one that is nearest to an alert."""
    judged, passed = select('signal="$signal"'), select(_SEVERE, 'condition="$condition"')
    curve = Query(f"max by ({RUN}, signal) (rl_signal{{{judged}}})", "{{signal}}")
    limit = Query(f"max by ({RUN}, severity) (rl_threshold{{{passed}}})", "{{severity}} limit")
    return timeseries(
        "The number behind it",
        [curve, limit],
        without_range("rl_signal"),
        absent="nothing is judged yet",
        description="The number that the cause is judged by, and the limit that it has passed. While nothing is wrong: "
        "the number that is nearest to an alert.",
        overrides=limits.look(),
    )


def _wrong() -> Json:
    """Return a table of what has gone wrong and is not over, with the step, value and limit of when it began.

    The run says so itself, and what follows from something else is left out; that it failed, hangs or is gone is said
    by alerts alone.
    """
    runbook = link("Runbook: what it means, what to do", f"{RUNBOOKS}/${{__value.raw}}.md", away=True)
    return table(
        "Wrong now",
        _columns(),
        "What has gone wrong and is not over, the oldest first, without what follows from it; the cause also if it is "
        "over; and the alerts that fire. Eased: the number is within its limit, but not where it was before. A click "
        "on an alert opens its runbook.",
        labels={
            "severity": SEVERITY,
            "condition": {"mappings": [texts()], "custom__width": 420},
            "subject": {},
            "alertname": {"links": [runbook]},
            **IN_PLACE,
        },
        hidden=("firing",),
        order=("severity", "condition", "subject", "now", "since step", "value then", "limit then", "alertname"),
        sort="since step",
        oldest=True,
        none="nothing is wrong",
    )


def _columns() -> list[Column]:
    """Return how it stands, the alert that fires, and the step, value and limit of when it began."""
    one, cause = f"rl_incident{{{select(_SEVERE, _FIRST)}}}", f"rl_run_cause_info{{{select()}}}"
    incident = f"({one} > 0 or {one} and on ({RUN}, condition, severity) {cause})"
    return [
        Column(
            "now", f"max by ({_OF}, subject) ({incident})", {"mappings": [_STANDING], "custom__cellOptions": COLORED}
        ),
        Column("firing", f"max by ({_OF}, alertname) (ALERTS{{{FIRING},{_SEVERE}}})"),
        *(
            Column(title, _of_event(recorded, served, incident), {"decimals": decimals})
            for title, recorded, served, decimals in (
                ("since step", "rl:condition_step", "rl_condition_last_event_step", 0),
                ("value then", "rl:condition", "rl_condition_last_event_value", 3),
                ("limit then", "rl:condition_threshold", "rl_condition_last_event_threshold", 3),
            )
        ),
    ]


def _of_event(recorded: str, served: str, incident: str) -> str:
    """Return an expression for a fact of when a condition began: as the rules keep it, else as the run serves it."""
    now = f"{served}{{{select(_SEVERE)}}} and on ({RUN}, condition, severity) {incident}"
    return f"max by ({_OF}) ({recorded}{{{select(_SEVERE)}}}) or max by ({_OF}) ({now})"
