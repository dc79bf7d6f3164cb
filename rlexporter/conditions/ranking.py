"""Puts the incidents of a run in the order in which a person should read them, the likeliest cause first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlexporter.catalog.causes import FATAL, HARMLESS, WAKE, Place, place
from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.model.condition import Condition, Limit, Severity
from rlexporter.model.incident import FINE, LOOK, WORDS, Incident, Standing, worst


def ranked(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return ``incidents`` in the order in which a person should read them.

    First what speaks: the likeliest cause, then the worst, of these what holds, what is not finite, what began first.
    A cause may be over, and may be less bad than what it led to; it speaks too. Then what is over, the newest first,
    and last the symptoms.
    """
    ordered = list(incidents)
    cause = _cause(ordered)
    if cause is not None and cause.word == FINE:
        ordered.remove(cause)
        cause = replace(cause, word=LOOK)
        ordered.append(cause)

    def order(incident: Incident) -> tuple[bool, bool, bool, int, int, int, Place]:
        where = place(*_declared(incident))
        if not incident.speaks:
            return bool(incident.cause), True, True, 0, 0, -incident.step, where
        fatal = _declared(incident)[0].family is FATAL
        eased = incident.standing is Standing.EASED
        began = 0 if fatal else incident.began
        return False, False, incident is not cause, -WORDS.index(incident.word), 2 * eased + (not fatal), began, where

    return tuple(sorted(ordered, key=order))


def _cause(incidents: Sequence[Incident]) -> Incident | None:
    """Return what began first of the critical incidents and of what led to them; None if nothing is critical.

    A warning led to what began in the next `WAKE` steps, and so on, as long as it is not over: only the first of them
    may be. A cause begins with the first of its symptoms, and comes before those that foretold it. None too where
    something is not finite: that is the cause.
    """
    grave = [incident for incident in incidents if incident.severity is not Severity.INFO]
    told = [incident for incident in grave if not incident.cause]
    word = worst(told)
    critical = [incident for incident in told if incident.severity is Severity.CRITICAL and incident.word == word]
    if word == FINE or not critical or any(_declared(incident)[0].family is FATAL for incident in critical):
        return None
    began = min(incident.began for incident in critical)
    harmful = [incident for incident in grave if _declared(incident)[0].family not in HARMLESS]
    for incident in sorted(harmful, key=lambda incident: -incident.began):
        if incident.standing is not Standing.OVER and incident.began >= began - WAKE:
            began = min(began, incident.began)
    led = [incident for incident in harmful if not incident.cause and incident.began >= began - WAKE]

    def beginning(cause: Incident) -> tuple[int, Place]:
        begun = [incident.began for incident in grave if cause.condition in (incident.condition, incident.cause)]
        return min(begun), place(*_declared(cause))

    first = min([*critical, *led], key=beginning)
    foretold = [  # what began first may be certain before its cause is
        incident
        for incident in led
        if first.condition in _declared(incident)[0].foretold_by and abs(incident.began - first.began) <= WAKE
    ]
    return min(foretold, key=beginning, default=first)


def _declared(incident: Incident) -> tuple[Condition, Limit]:
    condition = CONDITION_NAMED[incident.condition]
    return condition, next(limit for limit in condition.limits if limit.severity is incident.severity)
