"""The incidents of a run for a JSON document: their numbers, and the words of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlexporter.catalog import CONDITION_NAMED, RUNBOOKS
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.model.incident import Incident, Standing
from rlexporter.status.samples import number, whole


def runbook(alert: str) -> str:
    """Return the address of the page about ``alert``."""
    return f"{RUNBOOKS}/{alert}.md"


def as_json(found: Sequence[Incident], language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``."""
    return [_entry(each, language) for each in found]


def _entry(each: Incident, language: Language) -> dict[str, Any]:
    condition = CONDITION_NAMED[each.condition]
    return {
        "name": condition.name,
        "severity": each.severity.value,
        "alert": condition.alert,
        "subject": each.subject,
        "summary": language(condition.summary),
        "meaning": language(condition.meaning),
        "causes": [language(text) for text in condition.causes],
        "actions": [language(text) for text in condition.remedies],
        "signal_unit": each.unit,
        "series": each.series,
        "below": condition.below,
        "word": each.word,
        "standing": each.standing.value,
        "holds": each.standing is Standing.HOLDS,
        "symptom": bool(each.cause),
        "cause": each.cause,
        "count": each.count,
        "since": whole(each.since),
        "step": whole(each.step),
        "timestamp": number(each.time),
        "value": number(each.value),
        "threshold": number(each.threshold),
        "runbook": runbook(condition.alert),
    }
