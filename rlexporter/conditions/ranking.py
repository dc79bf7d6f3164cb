"""Puts the incidents of a run in the order in which a person should read them, the likeliest cause first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlexporter.catalog import CONDITION_NAMED
from rlexporter.catalog.causes import FATAL, HARMLESS, WAKE, Place, place
from rlexporter.model.condition import Condition, Limit, Severity
from rlexporter.model.incident import FINE, LOOK, WORDS, Incident, Standing, worst


def ranked(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return ``incidents`` in the order in which a person should read them.

    First what speaks: the likeliest cause, then the worst, of these what holds, what is not finite, what began first.
    A cause may be over, and may be less bad than what it led to; it speaks too. Then what is over, the newest first,
    and last the symptoms.
    """
    found = list(incidents)
    cause = _cause(found)
    if cause is not None and cause.word == FINE:
        found.remove(cause)
        cause = replace(cause, word=LOOK)
        found.append(cause)

    def order(each: Incident) -> tuple[bool, bool, bool, int, int, int, Place]:
        where = place(*_declared(each))
        if not each.speaks:
            return bool(each.cause), True, True, 0, 0, -each.step, where
        fatal = _declared(each)[0].family is FATAL
        eased = each.standing is Standing.EASED
        began = 0 if fatal else each.began
        return False, False, each is not cause, -WORDS.index(each.word), 2 * eased + (not fatal), began, where

    return tuple(sorted(found, key=order))


def _cause(found: Sequence[Incident]) -> Incident | None:
    """Return what began first of the critical incidents and of what led to them; None if nothing is critical.

    A warning led to what began in the next `WAKE` steps, and so on, as long as it is not over: only the first of them
    may be. A cause begins with the first of its symptoms, and comes before those that foretold it. None too where
    something is not finite: that is the cause.
    """
    grave = [each for each in found if each.severity is not Severity.INFO]
    told = [each for each in grave if not each.cause]
    critical = [each for each in told if each.severity is Severity.CRITICAL and each.word == worst(told)]
    if worst(told) == FINE or not critical or any(_declared(each)[0].family is FATAL for each in critical):
        return None
    began = min(each.began for each in critical)
    harmful = [each for each in grave if _declared(each)[0].family not in HARMLESS]
    for each in sorted(harmful, key=lambda each: -each.began):
        if each.standing is not Standing.OVER and each.began >= began - WAKE:
            began = min(began, each.began)
    led = [each for each in harmful if not each.cause and each.began >= began - WAKE]

    def beginning(cause: Incident) -> tuple[int, Place]:
        begun = [each.began for each in grave if cause.condition in (each.condition, each.cause)]
        return min(begun), place(*_declared(cause))

    first = min([*critical, *led], key=beginning)
    return min((each for each in led if _is_foretold(each, first)), key=beginning, default=first)


def _is_foretold(cause: Incident, symptom: Incident) -> bool:
    """Return True if ``symptom`` is one of ``cause``, although it may have been certain before it."""
    known = _declared(cause)[0].foretold_by
    return symptom.condition in known and abs(cause.began - symptom.began) <= WAKE


def _declared(incident: Incident) -> tuple[Condition, Limit]:
    condition = CONDITION_NAMED[incident.condition]
    return condition, next(each for each in condition.limits if each.severity is incident.severity)
