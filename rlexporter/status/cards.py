"""The answers to the four questions: each with its state, and the numbers that show it, beside their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlexporter.catalog import CONDITION_NAMED, CONDITIONS, NAMED
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.catalog.questions import QUESTIONS, Question, Shown
from rlexporter.conditions.from_catalog import sources
from rlexporter.model.condition import Family, Severity
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident
from rlexporter.model.metric import Kind, Metric, Series
from rlexporter.status import sentences
from rlexporter.status.history import since
from rlexporter.status.samples import Samples, number
from rlexporter.status.verdict import UNKNOWN, age, is_stalled

FEW = ("reward", "KL", "entropy", "gradient norm")
"""The numbers that are shown where there is room for a few."""
_SEVERE = (Severity.CRITICAL.value, Severity.WARNING.value)


def curves() -> list[str]:
    """Return the metrics whose curves the cards may show."""
    names = (source.series for each in QUESTIONS for shown in each.main for source in sources(shown))
    return ["rl_signal", *(name for name in dict.fromkeys(names) if NAMED[name].kind is not Kind.COUNTER)]


def as_json(
    samples: Samples,
    found: Sequence[Incident],
    before: Mapping[Series, Histogram],
    now: float,
    language: Language = ENGLISH,
) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``; ``before``: the histograms some steps ago."""
    return [_translated(_card(question, samples, found, before, now), language) for question in QUESTIONS]


def _translated(card: dict[str, Any], language: Language) -> dict[str, Any]:
    main = [{**entry, "name": language(entry["name"])} for entry in card["main"]]
    return {**card, "title": language(card["title"]), "main": main}


def few(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the value of each of the `FEW` numbers in the ``cards`` of a document; None where a run has none."""
    values = {each["name"]: each["value"] for card in cards for each in card["main"]}
    return {name: values.get(name) for name in FEW}


def _card(
    question: Question, samples: Samples, found: Sequence[Incident], before: Mapping[Series, Histogram], now: float
) -> dict[str, Any]:
    main = [entry for shown in question.main if (entry := _entry(shown, samples, before)) is not None]
    if Family.STALL in question.families and is_stalled(samples, now):
        main.insert(0, _silence(samples, now))
    words = [_word(each) for each in found if _family(each) in question.families]
    if Family.STALL in question.families and is_stalled(samples, now):
        words.append(ACT)
    hidden = samples.faults or sum(samples.of("rlexporter_errors_total").values())
    if hidden and Family.EXPORTER in question.families:
        words.append(LOOK)
    if any(isinstance(each["value"], str) for each in main):  # the condition that says so is on another card
        words += [LOOK, *(_word(each) for each in found if _family(each) is Family.NONFINITE)]
    worst = max(words, key=WORDS.index, default=FINE)
    empty = all(entry["value"] is None for entry in main)
    state = UNKNOWN if worst == FINE and empty else worst
    return {"question": question.name, "title": question.title, "state": state, "main": main}


def _family(each: Incident) -> Family:
    return CONDITION_NAMED[each.condition].family


def _word(each: Incident) -> str:
    """Return what an incident says on a card, where a symptom is worth a look: its numbers are bad too."""
    return LOOK if each.cause and each.word == ACT else each.word


def _silence(samples: Samples, now: float) -> dict[str, Any]:
    """Return how long a run that hangs has made no step."""
    metric = NAMED["rl_last_step_timestamp_seconds"]
    limit = number(samples.value("rl_stall_after_seconds"))
    entry = {"name": sentences.NO_STEP_FOR, "series": metric.series, "labels": {}, "kind": "age", "unit": "seconds"}
    return {**entry, "value": number(age(samples, now)), "healthy": "", "threshold": limit, "limits": []}


def _entry(shown: Shown, samples: Samples, before: Mapping[Series, Histogram]) -> dict[str, Any] | None:
    """Return the number at the first source that has one, or what is judged of it where limits are on it."""
    for source in sources(shown):
        metric = NAMED[source.series]
        value = _READ[metric.kind](metric, samples, before)
        if value is not None:
            judged = samples.value("rl_signal", shown.signal) if source.limited and value - value == 0.0 else None
            limits = list(_limits(shown.signal, samples)) if source.limited else []
            return {
                "name": shown.name,
                "series": metric.series if judged is None else "rl_signal",
                "labels": {} if judged is None else {"signal": shown.signal},
                "kind": (metric.kind if judged is None else Kind.GAUGE).value,
                "value": number(value if judged is None else judged),
                "unit": metric.unit,
                "healthy": metric.healthy.text if metric.healthy else "",
                "threshold": _nearest(limits, value),
                "limits": limits,
            }
    return None


def _gauge(metric: Metric, samples: Samples, before: Mapping[Series, Histogram]) -> float | None:
    return samples.value(metric.series)


def _counter(metric: Metric, samples: Samples, before: Mapping[Series, Histogram]) -> float | None:
    """Return the sum over all labels: 0 where nothing was counted, as the trainer's own counters are absent then."""
    found = samples.of(metric.series)
    return sum(found.values()) if found or metric.labels else None


def _histogram(metric: Metric, samples: Samples, before: Mapping[Series, Histogram]) -> float | None:
    series = Series(metric)
    counted = samples.snapshot.buckets.get(series)
    if counted is None:
        return None
    lately = since(counted, before.get(series))
    return lately.mean if lately.count or lately.nonfinite else None


_READ: dict[Kind, Callable[[Metric, Samples, Mapping[Series, Histogram]], float | None]] = {
    Kind.GAUGE: _gauge,
    Kind.COUNTER: _counter,
    Kind.HISTOGRAM: _histogram,
}


def _limits(signal: str, samples: Samples) -> Iterator[dict[str, Any]]:
    """Yield the limits in force for ``signal``."""
    for condition in CONDITIONS:
        if signal and condition.signal == signal:
            for limit in condition.limits:
                key = (condition.name, limit.severity.value)
                threshold = samples.value("rl_threshold", *key)
                if threshold is not None:
                    names = dict(zip(("condition", "severity"), key, strict=True))
                    yield {**names, "below": condition.below, "threshold": number(threshold)}


def _nearest(limits: Sequence[Mapping[str, Any]], value: float) -> float | None:
    """Return the limit of an alert that is nearest to ``value``."""
    found = [each["threshold"] for each in limits if each["severity"] in _SEVERE]
    numbers = [each for each in found if isinstance(each, float)]
    return min(numbers, key=lambda each: abs(each - value) if value == value else 0.0, default=None)
