"""The answers to the questions: each with its state, and the numbers that show it, beside their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.catalog.metrics import NAMED
from rlexporter.catalog.questions import QUESTIONS, Question, Shown
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS, SIGNAL_NAMED, sources
from rlexporter.model.condition import Family, Read, Severity
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident
from rlexporter.model.metric import Kind, Metric, Series
from rlexporter.status.history import since
from rlexporter.status.numbers import number
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import UNKNOWN, age, is_stalled

FEW = ("reward", "KL", "entropy", "gradient norm")
"""The numbers that are shown where there is room for a few."""
_SEVERE = (Severity.CRITICAL.value, Severity.WARNING.value)


def curves() -> list[str]:
    """Return the metrics whose curves the cards may show."""
    names = (source.series for question in QUESTIONS for shown in question.main for source in sources(shown))
    return ["rl_signal", *(name for name in dict.fromkeys(names) if NAMED[name].kind is not Kind.COUNTER)]


def as_json(
    samples: Samples, before: Mapping[Series, Histogram], now: float, language: Language = ENGLISH
) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``; ``before``: the histograms some steps ago."""
    cards = [(question, _card(question, samples, before, now, language)) for question in QUESTIONS]
    return [card for question, card in cards if card["main"] or card["state"] != UNKNOWN or not question.optional]


def few(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the value of each of the `FEW` numbers in the ``cards`` of a document; None where a run has none."""
    values = {entry["name"]: entry["value"] for card in cards for entry in card["main"]}
    return {name: values.get(name) for name in FEW}


def _card(
    question: Question, samples: Samples, before: Mapping[Series, Histogram], now: float, language: Language
) -> dict[str, Any]:
    main = [entry for shown in question.main if (entry := _entry(shown, samples, before, language)) is not None]
    incidents = [(CONDITION_NAMED[incident.condition].family, incident) for incident in samples.snapshot.incidents]
    words = [_word(incident) for family, incident in incidents if family in question.families]
    if Family.STALL in question.families and is_stalled(samples, now):
        main.insert(0, _silence(samples, now, language))
        words.append(ACT)
    hidden = samples.faults or sum(samples.of("rlexporter_errors_total").values())
    if hidden and Family.EXPORTER in question.families:
        words.append(LOOK)
    if any(isinstance(entry["value"], str) for entry in main):  # the condition that says so is on another card
        words += [LOOK, *(_word(incident) for family, incident in incidents if family is Family.NONFINITE)]
    worst = max(words, key=WORDS.index, default=FINE)
    empty = all(entry["value"] is None for entry in main)
    state = UNKNOWN if worst == FINE and empty else worst
    return {"question": question.name, "title": language(question.title), "state": state, "main": main}


def _word(incident: Incident) -> str:
    """Return what an incident says on a card, where a symptom is worth a look: its numbers are bad too."""
    return LOOK if incident.cause and incident.word == ACT else incident.word


def _silence(samples: Samples, now: float, language: Language) -> dict[str, Any]:
    """Return the time since the last step of a run that hangs."""
    return {
        "name": language("no step for"),
        "series": "rl_last_step_timestamp_seconds",
        "labels": {},
        "kind": "age",
        "unit": "seconds",
        "value": number(age(samples, now)),
        "healthy": "",
        "threshold": number(samples.value("rl_stall_after_seconds")),
        "limits": [],
        "prominent": False,
        "distribution": "",
    }


def _entry(
    shown: Shown, samples: Samples, before: Mapping[Series, Histogram], language: Language
) -> dict[str, Any] | None:
    """Return the number at the first source that has one, or what is judged of it where limits are on it."""
    for source in sources(shown):
        metric = NAMED[source.series]
        value = _value(metric, samples, before)
        if value is not None:
            judged = samples.value("rl_signal", shown.signal) if source.limited and value - value == 0.0 else None
            limits = list(_limits(shown.signal, samples)) if source.limited else []
            return {
                "name": language(shown.name),
                "series": metric.series if judged is None else "rl_signal",
                "labels": {} if judged is None else {"signal": shown.signal},
                "kind": (metric.kind if judged is None else Kind.GAUGE).value,
                "value": number(value if judged is None else judged),
                "unit": metric.unit,
                "healthy": metric.healthy.text if metric.healthy else "",
                "threshold": _nearest(limits, value),
                "limits": limits,
                "prominent": shown.prominent,
                "distribution": _distribution(shown.signal, samples),
            }
    return None


def _distribution(signal: str, samples: Samples) -> str:
    """Return the histogram whose mean ``signal`` is, where the run has one."""
    read = SIGNAL_NAMED[signal].sources if signal else ()
    names = (source.series for source in read if source.read is Read.MEAN)
    return next((name for name in names if Series(NAMED[name]) in samples.snapshot.buckets), "")


def _value(metric: Metric, samples: Samples, before: Mapping[Series, Histogram]) -> float | None:
    """Return a gauge's value, the sum of a counter over its labels, or the mean of a histogram's last steps."""
    if metric.kind is Kind.GAUGE:
        return samples.value(metric.series)
    if metric.kind is Kind.COUNTER:
        values = samples.of(metric.series).values()
        # The trainer's own counters are absent while they are 0; ours have no label and are always there.
        return sum(values) if values or metric.labels else None
    counted = samples.snapshot.buckets.get(Series(metric))
    if counted is None:
        return None
    lately = since(counted, before.get(Series(metric)))
    return lately.mean if lately.count or lately.nonfinite else None


def _limits(signal: str, samples: Samples) -> Iterator[dict[str, Any]]:
    """Yield the limits in force for ``signal``."""
    for condition in CONDITIONS:
        if signal and condition.signal == signal:
            for limit in condition.limits:
                severity = limit.severity.value
                threshold = samples.value("rl_threshold", condition.name, severity)
                if threshold is not None:
                    names = {"condition": condition.name, "severity": severity}
                    relative = condition.detector.relative
                    yield {**names, "below": condition.below, "relative": relative, "threshold": number(threshold)}


def _nearest(limits: Sequence[Mapping[str, Any]], value: float) -> float | None:
    """Return the limit of an alert that is nearest to ``value``."""
    thresholds = [limit["threshold"] for limit in limits if limit["severity"] in _SEVERE]
    finite = [threshold for threshold in thresholds if isinstance(threshold, float)]
    return min(finite, key=lambda threshold: abs(threshold - value) if value == value else 0.0, default=None)
