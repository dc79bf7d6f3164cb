"""First row of a run: one verdict, its cause in words, and all that is wrong, as the rules of Prometheus find it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.conditions.table import CONDITIONS, SIGNALS
from rlexporter.model.condition import Condition, Severity
from scripts.pack.dashboards import limits
from scripts.pack.dashboards.boxes import (
    COLORED,
    GRAY,
    GREEN,
    IN_PLACE,
    ORANGE,
    RED,
    SEVERITY,
    STATUS_PAGE,
    Column,
    link,
    said,
    sentences,
    stat,
    table,
    words,
)
from scripts.pack.dashboards.curves import SHOWN, value
from scripts.pack.dashboards.frame import FIRING, RUN, ZERO, Json, Page, select
from scripts.pack.dashboards.panels import Query, empty, timeseries, without_range
from scripts.pack.outside import PROCESS_ALERTS

_NOTHING, _UNKNOWN = "none", "unknown"
WORD = words({"2": ("act", RED), "1": ("look", ORANGE), "0": ("fine", GREEN), "-1": ("not judged", GRAY)})
"""The words of the verdict's numbers."""
TITLE = "Is my run healthy?"
_STANDING = words({"2": ("holds", RED), "1": ("eased", ORANGE), "0": ("over", GRAY)})
_SEVERE = 'severity=~"critical|warning"'
_OF = f"{RUN}, condition, severity"
_FIRST = 'cause=""'
"""A matcher of incidents that are no symptoms of others."""
_SEEN = f"max by ({RUN}) (rl:run_last_seen_timestamp_seconds{{{select()}}})"
_SERVED = f"max by ({RUN}) (rl_run_info{{{ZERO}}})"
_RULES = "Not judged: the rules of rlexporter are not loaded, or have not run yet."


def _is_told_from_1(condition: Condition) -> bool:
    """Return True if a condition counts something of which one is too many, or is so or not."""
    return condition.finding or _SIGNALS[condition.signal].unit == _COUNTED


def _color(condition: Condition) -> str:
    return RED if any(limit.severity is Severity.CRITICAL for limit in condition.limits) else ORANGE


_SIGNALS = {signal.name: signal for signal in SIGNALS}
_COUNTED = "values"
"""The unit of signals that count NaN and infinities."""
_FROM_1 = [each.name for each in CONDITIONS if _is_told_from_1(each)]
"""The conditions whose limit says nothing."""
_STATES = [
    *PROCESS_ALERTS,
    *(each.name for each in CONDITIONS if each.finding),
]
"""Those whose value says nothing either; of what the rules find of a process it is a time."""


def word() -> str:
    """Return an expression for each run's verdict: 2 act, 1 look, 0 fine, -1 without our rules."""
    return f"max by ({RUN}) (rl:run_verdict{{{select()}}}) or 0 * {_SEEN} or 0 * {_SERVED} - 1"


def cause() -> str:
    """Return an expression with the condition that the verdict names for each run, as the label ``condition``."""
    found = f"max by ({RUN}, condition) (rl:run_cause{{{select()}}})"
    nothing = f'label_replace({_SEEN}, "condition", "{_NOTHING}", "", "") unless on ({RUN}) {found}'
    unknown = f'label_replace({_SERVED}, "condition", "{_UNKNOWN}", "", "") unless on ({RUN}) {_SEEN}'
    return f"{found} or {nothing} or {unknown}"


def _told() -> str:
    """Return an expression with what the verdict names, as the label ``cause``, and since when, as ``since``.

    ``cause`` is a condition, with what it is about where a sentence has a place for that; else that is in ``since``,
    which is never empty: a table would keep what stood there before.
    """
    found = f"max by ({RUN}, condition, subject) (rl:run_cause{{{select()}}})"
    first = f"min by ({RUN}, condition) (rl:condition_step{{{select()}}})"
    steps = f'count_values by ({RUN}, condition) ("step", {first})'
    known = f"{found} * on ({RUN}, condition) group_left (step) {steps} or on ({RUN}) {found}"
    for label, text, source, pattern in (
        ("cause", "$1", "condition", "(.+)"),
        ("of", "$1", "subject", "(.+)"),
        ("since", " ", "", ""),
        ("since", "seen in step $1", "step", "(.+)"),
    ):
        known = f'label_replace({known}, "{label}", "{text}", "{source}", "{pattern}")'
    known = f'label_join({known}, "named", " ", "condition", "subject")'
    known = f'label_replace({known}, "cause", "$1", "named", "((?:{"|".join(_ABOUT)}) .+)")'
    known = (
        f'label_join(label_replace({known}, "of", "", "condition", "{"|".join(_ABOUT)}"), "since", ", ", "of", "since")'
    )
    known = f'max by ({RUN}, cause, since) (label_replace({known}, "since", "$1", "since", ", (.*)"))'
    nothing, unknown = (
        f'label_replace(label_replace({seen}, "cause", "{word}", "", ""), "since", " ", "", "")'
        for seen, word in ((_SEEN, _NOTHING), (_SERVED, _UNKNOWN))
    )
    return f"{known} or on ({RUN}) {nothing} or on ({RUN}) {unknown}"


_TEXTS = {
    **{name: (alert.summary, RED) for name, alert in PROCESS_ALERTS.items()},
    **{each.name: (each.summary, _color(each)) for each in CONDITIONS},
    _NOTHING: ("Nothing is wrong in what is judged.", GREEN),
    _UNKNOWN: (_RULES, GRAY),
}
"""The words for the names of conditions: what the runbooks call them, in the color of their worst limit."""
_ABOUT = {each.name: (each.about.format(subject="$1"), _color(each)) for each in CONDITIONS if each.about}
"""The same of those that name what they are about."""
CAUSE: Mapping[str, object] = {"mappings": [words(_TEXTS)], "custom__width": 300, "displayName": "cause"}
"""Look of the condition that a verdict names, in a table of runs."""


def build(page: Page) -> None:
    """Add the panels to ``page``."""
    text = "What the run says of itself, or that it has failed, hangs or is gone. The cause stands beside it."
    page.add(stat("Verdict", Query(word(), "verdict"), text, mappings=[WORD], fill=True), 4, 7)
    page.add(_why(), 8, 7)
    page.add(_number(), 12, 7)
    page.add(_wrong(), 24, 5)


def _why() -> Json:
    """Return the cause in words, and since when it is so."""
    about = sentences({f"{name} (.+)": text for name, text in _ABOUT.items()}, len(_TEXTS))
    made = said(
        "Why",
        _told(),
        ("cause", "since"),
        "The likeliest cause of all that is wrong, as the run itself names it, and the step in which that was certain: "
        "the page at its own address says more.",
        mappings=[words(_TEXTS), *about],
        none=empty("the rules of rlexporter are not loaded"),
    )
    made["options"].update(text={"valueSize": 22}, orientation="horizontal")
    return made


def _number() -> Json:
    """Return the curve of the number that the cause is judged by, else of the reward.

    A series without the label ``signal`` matches only while the variable is empty.
    """
    judged, passed = select('signal="$signal"'), select(_SEVERE, 'condition="$condition"')
    curve = Query(f"max by ({RUN}, signal) (rl_signal{{{judged}}})", "{{signal}}")
    limit = Query(f"max by ({RUN}, severity) (rl_threshold{{{passed}}})", "{{severity}} limit")
    reward = Query(value(SHOWN["reward"], 'signal="$signal"'), "reward")
    return timeseries(
        "The number behind it",
        [curve, limit, reward],
        without_range("rl_signal"),
        window=True,
        absent="nothing is judged yet",
        description="The number that the cause is judged by, and the limit that it has passed. While nothing is wrong: "
        "the reward.",
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
        "What has gone wrong and is not over, the cause first, without what follows from it; the cause also if it is "
        "over; and the alerts that fire. Eased: the number is within its limit, but not where it was before. A click "
        "on an alert opens its runbook, one on an instance the page of the run.",
        labels={
            "severity": SEVERITY,
            "condition": {"mappings": [words(_TEXTS)], "custom__width": 420},
            "subject": {},
            "alertname": {"links": [runbook]},
            "instance": {"links": [STATUS_PAGE]},
            **IN_PLACE,
        },
        hidden=("firing", "order"),
        order=("severity", "condition", "subject", "now", "seen in step", "value then", "limit then", "alertname"),
        first="order",
        none="nothing is wrong",
    )


def _columns() -> list[Column]:
    """Return how it stands, the alert that fires, the step, value and limit of when it began, and the place of a row.

    What is so or not has no value, and what is told from 1 on no limit.
    """
    one, cause = f"rl_incident{{{select(_SEVERE, _FIRST)}}}", f"rl_run_cause_info{{{select(_SEVERE)}}}"
    incident = f"({one} > 0 or {one} and on ({RUN}, condition, severity) {cause})"
    now = f"max by ({_OF}, subject, instance) (topk by ({_OF}, subject) (1, {incident}))"
    firing = _worst(f"ALERTS{{{FIRING},%s}}")
    step, value_then, limit_then = (
        _of_event(recorded, served, incident, unsaid)
        for recorded, served, unsaid in (
            ("rl:condition_step", "rl_condition_last_event_step", ()),
            ("rl:condition", "rl_condition_last_event_value", _STATES),
            ("rl:condition_threshold", "rl_condition_last_event_threshold", _FROM_1),
        )
    )
    named = " or ".join(f"0 * max by ({_OF}) ({each}) - 1" for each in (f"rl:run_cause{{{select(_SEVERE)}}}", cause))
    last = " or ".join(
        f"1e9 + 0 * max by ({_OF}) ({each})" for each in (_worst(f"rl:condition{{{select('%s')}}}"), firing)
    )
    return [
        Column("now", now, {"mappings": [_STANDING], "custom__cellOptions": COLORED}),
        Column("firing", f"max by ({_OF}, alertname) ({firing})"),
        Column("seen in step", step, {"decimals": 0}),
        Column("value then", value_then, {"decimals": 3}),
        Column("limit then", limit_then, {"decimals": 3}),
        Column("order", f"{named} or {step} or {last}"),
    ]


def _worst(series: str) -> str:
    """Return an expression for ``series``, with a place for a matcher, at the worst severity that a condition has."""
    critical, warning = (f'severity="{each}"' for each in ("critical", "warning"))
    also = f"rl:condition{{{select(critical)}}}"
    return f"{series % critical} or {series % warning} unless on ({RUN}, condition) {also}"


def _of_event(recorded: str, served: str, incident: str, unsaid: Collection[str]) -> str:
    """Return an expression for a fact of when a condition began: as the rules keep it, else as the run serves it.

    ``unsaid``: the conditions that have no such fact.
    """
    more = [f'condition!~"{"|".join(unsaid)}"'] if unsaid else []
    kept = _worst(f"{recorded}{{{select('%s', *more)}}}")
    now = f"{served}{{{select(_SEVERE, *more)}}} and on ({RUN}, condition, severity) {incident}"
    return f"max by ({_OF}) ({kept}) or max by ({_OF}) ({now})"
