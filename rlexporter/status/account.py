"""An incident in the words of the catalog: what went wrong, with what, how far, since when; and its curve. Pure."""

from __future__ import annotations

from functools import cache
from math import isfinite
from typing import Any

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.catalog.metrics import NAMED
from rlexporter.catalog.runbooks import runbook as book_of
from rlexporter.conditions.table import CONDITION_NAMED, SIGNAL_NAMED
from rlexporter.model.condition import Family, Read
from rlexporter.model.incident import Incident, Standing
from rlexporter.model.metric import Kind
from rlexporter.status import steps
from rlexporter.status.numbers import number, whole
from rlexporter.status.samples import COUNTED, Samples, quantity

_BEGAN = {
    Standing.HOLDS: "It began in step {step}.",
    Standing.EASED: "It began in step {step}. It is back within its limit, but not at its earlier level.",
    Standing.OVER: "It began in step {step} and is over.",
}
_OF_TIME = (Family.SLOW, Family.STALL)
_VANISHING = 1e-3
"""A limit on a share of the run's own past, below which the share is next to nothing."""
_ABSTRACT = ("", "spreads", "ranges", "orders of magnitude", "signs", "scores")
"""Units that nobody has an idea of, where a signal is computed."""


def told(incident: Incident, samples: Samples, language: Language, followed: bool = False) -> str:
    """Return what went wrong, with what, how far, since when, and how it stands; ``followed``: more than it stands."""
    subject, parts = incident.subject, [_summary(incident, language)]
    if subject and not CONDITION_NAMED[incident.condition].about:
        parts.append(language("It is about {subject}.", subject=subject))
    since = incident.since  # as the curve beside it is marked
    function = _function(incident)
    measured = "" if function or _is_yes_or_no(incident) else _measured(incident, samples, language)
    told_when = measured and not _is_abstract(incident) and since == incident.step
    if told_when and incident.standing is Standing.HOLDS:
        began = ""
    elif incident.standing is Standing.EASED and CONDITION_NAMED[incident.condition].family is Family.NONFINITE:
        began = language("It began in step {step}. None came since, but the run has trained on it.", step=str(since))
    elif followed and incident.standing is Standing.OVER:
        began = language("It began in step {step} and is over, but what followed is not.", step=str(since))
    else:
        began = language(_BEGAN[incident.standing], step=str(since))
    return language.together([*parts, _returned(function, samples, language), measured, began])


def _summary(incident: Incident, language: Language) -> str:
    """Return what went wrong, with what, where the catalog has a sentence for that."""
    condition = CONDITION_NAMED[incident.condition]
    if incident.subject and condition.about:
        return language(condition.about, subject=incident.subject)
    return language(condition.summary)


def _function(incident: Incident) -> str:
    """Return the subject, whose rewards tell more than the number that was judged; empty if it is about time."""
    return "" if CONDITION_NAMED[incident.condition].family in _OF_TIME else incident.subject


def _is_yes_or_no(incident: Incident) -> bool:
    """Return True if it is a finding, or if its number only counts what must not be."""
    return incident.unit in COUNTED or CONDITION_NAMED[incident.condition].finding


def _is_abstract(incident: Incident) -> bool:
    """Return True if the number is one that only the judge knows: what it is computed from says more to a person."""
    signal = SIGNAL_NAMED[CONDITION_NAMED[incident.condition].signal]
    if signal.unit == "fraction":
        return abs(incident.threshold) < _VANISHING
    return signal.unit in _ABSTRACT and any(source.derived for source in signal.sources)


def _beside(incident: Incident, samples: Samples) -> str | None:
    """Return the gauge that shows what an incident is about; None if the run has none."""
    names = (*CONDITION_NAMED[incident.condition].related, incident.series)
    return next((name for name in names if samples.value(name) is not None and NAMED[name].kind is Kind.GAUGE), None)


def _measured(incident: Incident, samples: Samples, language: Language) -> str:
    """Return the number that was too much, and its limit; empty where these are no numbers."""
    if _is_abstract(incident):
        name = _beside(incident, samples)
        value = samples.value(name) if name else None
        if name is None or value is None:
            return ""
        return language("`{series}` is now {value}.", series=name, value=quantity(value, NAMED[name].unit, language))
    if not (isfinite(incident.value) and isfinite(incident.threshold)):
        return ""
    had, limit = (quantity(each, incident.unit, language) for each in (incident.value, incident.threshold))
    return language("In step {step}: {value}, limit {limit}.", step=str(incident.step), value=had, limit=limit)


def _returned(function: str, samples: Samples, language: Language) -> str:
    """Return what a reward function returns now; empty for anything else."""
    mean, spread = (samples.value(f"rl_reward_function_{name}", function) for name in ("mean", "std"))
    if mean is None or spread is None or not isfinite(mean):
        return ""
    if spread == 0:
        return language("It now returns {value} for every completion.", value=f"{mean:.4g}")
    return language("It now returns {value} ± {spread}.", value=f"{mean:.4g}", spread=f"{spread:.4g}")


def curve(incident: Incident, samples: Samples) -> dict[str, Any] | None:
    """Return the series that shows it: of a reward function its mean, else what was judged, else what is beside it.

    Where the run logs nothing of that, it is the signal that is read from there in other runs.
    """
    signal = "" if _is_yes_or_no(incident) else CONDITION_NAMED[incident.condition].signal
    beside = _beside(incident, samples)
    of_function = [("rl_reward_function_mean", _function(incident))]
    judged, plain = [("rl_signal", signal)], [(beside, "")] if beside else []
    other = [("rl_signal", each) for name in CONDITION_NAMED[incident.condition].related for each in _read_at(name)]
    ordered = plain + judged if _is_abstract(incident) else judged + plain
    for name, label in of_function + ordered + other:
        labels = {NAMED[name].labels[0]: label} if label else {}
        if samples.value(name, *labels.values()) is not None:
            return {"series": name, "labels": labels}
    return None


@cache
def _read_at(series: str) -> tuple[str, ...]:
    """Return the signals that are read at ``series`` in some runs, as it is."""
    read = {(source.series, name): source.read for name, signal in SIGNAL_NAMED.items() for source in signal.sources}
    return tuple(name for (at, name), how in read.items() if at == series and how in (Read.VALUE, Read.MEAN))


def runbook(alert: str) -> str:
    """Return the address of the page about ``alert``."""
    return f"{RUNBOOKS}/{alert}.md"


def incidents_as_json(samples: Samples, language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``."""
    return [_incident(incident, samples, language) for incident in samples.snapshot.incidents]


def _incident(incident: Incident, samples: Samples, language: Language) -> dict[str, Any]:
    condition = CONDITION_NAMED[incident.condition]
    book = book_of(condition.alert)
    return {
        "name": condition.name,
        "severity": incident.severity.value,
        "alert": condition.alert,
        "subject": incident.subject,
        "summary": _summary(incident, language),
        "meaning": book.meaning.get(condition.name, ""),
        "causes": book.causes_of(condition.name),
        "actions": steps.of_runbook(condition.alert, condition.name, samples, language),
        "signal": condition.signal,
        "signal_unit": incident.unit,
        "series": incident.series,
        "below": condition.below,
        "word": incident.word,
        "standing": incident.standing.value,
        "holds": incident.standing is Standing.HOLDS,
        "symptom": bool(incident.cause),
        "cause": incident.cause,
        "count": incident.count,
        "since": whole(incident.since),
        "over": whole(incident.over),
        "step": whole(incident.step),
        "timestamp": number(incident.time),
        "value": None if condition.finding else number(incident.value),
        "threshold": None if condition.finding else number(incident.threshold),
        "runbook": runbook(condition.alert),
    }
