"""The conditions of a run that have begun: with the numbers of that moment, and the words of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlexporter.catalog import CONDITION_NAMED, RUNBOOKS
from rlexporter.catalog.causes import WAKE, Place, place
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.model.condition import Condition, Limit, Severity
from rlexporter.status.samples import Samples, number, whole

SEVERITIES = [severity.value for severity in Severity]
"""The severities, the worst first."""


@dataclass(frozen=True, slots=True)
class Began:
    """A limit of a condition that has begun, and when it did so last."""

    condition: Condition
    limit: Limit
    holds: bool
    symptom: bool
    in_force: bool
    """True if it holds, or began so lately that what flaps does not flap here."""
    count: int
    step: int
    time: float | None
    value: float | None
    threshold: float | None

    @property
    def place(self) -> Place:
        """Return its place in the order of causes."""
        return place(self.condition, self.limit)


def began(samples: Samples) -> list[Began]:
    """Return what has begun, the newest first; symptoms come after all that are none."""
    found = []
    for (name, severity), step in samples.of("rl_condition_last_event_step").items():
        condition = CONDITION_NAMED.get(name)
        limits = [each for each in condition.limits if each.severity.value == severity] if condition else []
        if condition is not None and limits:
            found.append(_began(samples, condition, limits[0], int(step)))
    return sorted(found, key=lambda each: (each.symptom, -each.step, each.place))


def _began(samples: Samples, condition: Condition, limit: Limit, step: int) -> Began:
    key = (condition.name, limit.severity.value)
    holds = samples.value("rl_condition", *key) == 1.0
    lately = samples.step is not None and 0 <= samples.step - step < WAKE
    return Began(
        condition,
        limit,
        holds=holds,
        symptom=samples.value("rl_condition_symptom", *key) == 1.0,
        in_force=holds or lately,
        count=int(samples.value("rl_condition_events_total", *key) or 0),
        step=step,
        time=samples.value("rl_condition_last_event_timestamp_seconds", *key),
        value=samples.value("rl_condition_last_event_value", *key),
        threshold=samples.value("rl_condition_last_event_threshold", *key),
    )


def runbook(alert: str) -> str:
    """Return the address of the page about ``alert``."""
    return f"{RUNBOOKS}/{alert}.md"


def as_json(found: Sequence[Began], language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``."""
    return [_entry(each, language) for each in found]


def _entry(each: Began, language: Language) -> dict[str, Any]:
    condition = each.condition
    return {
        "name": condition.name,
        "severity": each.limit.severity.value,
        "alert": condition.alert,
        "summary": language(condition.summary),
        "meaning": language(condition.meaning),
        "causes": [language(text) for text in condition.causes],
        "actions": [language(text) for text in condition.remedies],
        "signal_unit": SIGNAL_NAMED[condition.signal].unit,
        "below": condition.below,
        "holds": each.holds,
        "symptom": each.symptom,
        "count": each.count,
        "step": whole(each.step),
        "timestamp": number(each.time),
        "value": number(each.value),
        "threshold": number(each.threshold),
        "runbook": runbook(condition.alert),
    }
