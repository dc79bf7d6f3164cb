"""The verdict on a run: fine, look or act, and why; and its incidents in the words of the catalogue. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlexporter.catalog import CONDITION_NAMED, RUN_FAILED, RUN_STALLED, RUNBOOKS
from rlexporter.catalog.causes import FAILURE
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.model.condition import Severity
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident, Standing, worst
from rlexporter.model.snapshot import RunState
from rlexporter.status import sentences
from rlexporter.status.samples import Samples, number, whole

UNKNOWN = "unknown"
STUCK = "stuck"
"""The state, for a reader, of a run that should have made a step by now."""

_BEGAN = {
    Standing.HOLDS: sentences.BEGAN,
    Standing.EASED: sentences.BEGAN_AND_EASED,
    Standing.OVER: sentences.BEGAN_AND_OVER,
}
_ENDED = {
    RunState.FINISHED: sentences.FINISHED,
    RunState.STOPPED: sentences.STOPPED,
    RunState.PREEMPTED: sentences.PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to: how is this run?"""

    word: str
    code: str
    """The reason, for programs; docs/api.md lists them."""
    text: str
    conditions: tuple[str, ...] = ()
    """The conditions of the incidents that speak, the likeliest cause first, then the worst."""
    actions: tuple[str, ...] = ()
    """Things to do, the best first."""
    runbook: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a verdict, from one place."""

    word: str
    code: str
    text: str
    actions: tuple[str, ...] = ()
    alert: str = ""


def verdict(samples: Samples, now: float, language: Language = ENGLISH) -> Verdict:
    """Return the verdict on a run; ``now``: seconds since the epoch.

    Its text and its actions are in ``language``. A failed or hanging process comes first, unless an incident explains
    it; else what its incidents say of the run.
    """
    found = samples.snapshot.incidents
    speaking = [each for each in found if each.speaks]
    process, incidents = _of_process(samples, now, language), _of_incidents(speaking, language)
    explained = samples.value("rl_condition_symptom", *FAILURE) == 1.0
    parts = [part for part in (process, incidents) if part is not None]
    if explained and incidents is not None:
        parts.reverse()
    parts.sort(key=lambda part: -WORDS.index(part.word))
    first = parts[0] if parts else _nothing(samples, language)
    texts = [part.text for part in parts]
    if not speaking and first.word == FINE:
        texts += [_nothing(samples, language).text, *_was_critical(found, language)]
    return Verdict(
        first.word,
        _code(process, first),
        language.together([*texts, *_checkpoint(samples, first.word, language)]),
        tuple(each.condition for each in speaking),
        tuple(map(language, first.actions)),
        runbook(first.alert) if first.alert else "",
    )


def age(samples: Samples, now: float) -> float | None:
    """Return the seconds since the last step ended, or since the start before the first one."""
    last = samples.value("rl_last_step_timestamp_seconds")
    return None if last is None else max(0.0, now - last)


def is_stalled(samples: Samples, now: float) -> bool:
    """Return True if the run should have made a step by now."""
    state, since, limit = samples.snapshot.state, age(samples, now), samples.value("rl_stall_after_seconds")
    return state is not None and not state.over and None not in (since, limit) and (since or 0.0) > (limit or 0.0)


def span(seconds: float, language: Language = ENGLISH) -> str:
    """Return a time in words: ``95 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return language(sentences.SECONDS, seconds=f"{seconds:.0f}")
    if seconds < 7200:
        return language(sentences.MINUTES, minutes=f"{seconds / 60:.0f}")
    return language(sentences.HOURS, hours=f"{seconds / 3600:.1f}")


def _code(process: _Part | None, worst: _Part) -> str:
    """Return the code of the worst part, but for a process that says how it ended or begins."""
    if process is not None and (process.word == ACT or worst.code == "ok"):
        return process.code
    return worst.code


def _of_process(samples: Samples, now: float, language: Language) -> _Part | None:
    state = samples.snapshot.state
    if state is None:
        return _Part(LOOK, UNKNOWN, language(sentences.STATE_UNKNOWN))
    if is_stalled(samples, now):
        return _Part(ACT, "stalled", _stall(samples, now, language), RUN_STALLED.remedies, RUN_STALLED.alert)
    if state is RunState.FAILED:
        exception = samples.info("rl_run_exception_info").get("exception", "")
        ended = language(sentences.FAILED_WITH, exception=exception) if exception else language(sentences.FAILED)
        return _Part(ACT, "failed", _ended(samples, ended, language), RUN_FAILED.remedies, RUN_FAILED.alert)
    if state.over:
        return _Part(FINE, state.value, _ended(samples, language(_ENDED[state]), language))
    if not samples.value("rl_steps_total"):
        return _Part(FINE, "starting", language(sentences.NO_STEP))
    return None


def _of_incidents(speaking: Sequence[Incident], language: Language) -> _Part | None:
    if not speaking:
        return None
    first = CONDITION_NAMED[speaking[0].condition]
    texts = [_told(speaking[0], language)]
    if others := len(speaking) - 1:
        texts.append(language(sentences.ONE_OTHER if others == 1 else sentences.OTHERS, count=str(others)))
    return _Part(worst(speaking), "condition", language.together(texts), first.remedies, first.alert)


def _told(incident: Incident, language: Language) -> str:
    """Return what went wrong, with what, since when, and how it stands."""
    summary = language(CONDITION_NAMED[incident.condition].summary)
    subject = language(sentences.SUBJECT, subject=incident.subject) if incident.subject else ""
    began = language(_BEGAN[incident.standing], step=str(incident.since if incident.subject else incident.began))
    return language.together([summary, subject, began])


def _nothing(samples: Samples, language: Language) -> _Part:
    judged = sum(value == 1.0 for value in samples.of("rl_condition_judged").values())
    return _Part(FINE, "ok", language(sentences.NOTHING_HOLDS, count=str(judged)) if judged else "")


def _was_critical(found: Sequence[Incident], language: Language) -> list[str]:
    """Return what was critical last and is over."""
    over = [each for each in found if each.severity is Severity.CRITICAL and not each.cause]
    last = max(over, key=lambda each: each.step, default=None)
    return [language(sentences.WAS_CRITICAL), _told(last, language)] if last is not None else []


def _checkpoint(samples: Samples, word: str, language: Language) -> list[str]:
    if word != ACT:
        return []
    good, last = samples.value("rl_last_good_checkpoint_step"), samples.value("rl_last_checkpoint_step")
    if good is not None:
        return [language(sentences.GOOD_CHECKPOINT, step=f"{good:.0f}")]
    return [language(sentences.NO_GOOD_CHECKPOINT if last is not None else sentences.NO_CHECKPOINT)]


def _stall(samples: Samples, now: float, language: Language) -> str:
    since, limit = age(samples, now) or 0.0, samples.value("rl_stall_after_seconds") or 0.0
    phase = next((labels[0] for labels, value in samples.of("rl_phase").items() if value == 1.0), "")
    stalled = sentences.STALLED if samples.value("rl_steps_total") else sentences.STALLED_AT_START
    text = language(stalled, time=span(since, language), limit=span(limit, language))
    return language.together([text, language(sentences.PHASE, phase=phase) if phase else ""])


def _ended(samples: Samples, ended: str, language: Language) -> str:
    if samples.step is None:
        return language(sentences.ENDED, ended=ended)
    return language(sentences.ENDED_AFTER, ended=ended, step=str(samples.step))


def runbook(alert: str) -> str:
    """Return the address of the page about ``alert``."""
    return f"{RUNBOOKS}/{alert}.md"


def incidents_as_json(found: Sequence[Incident], language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``."""
    return [_incident(each, language) for each in found]


def _incident(each: Incident, language: Language) -> dict[str, Any]:
    condition = CONDITION_NAMED[each.condition]
    return {
        "name": condition.name,
        "severity": each.severity.value,
        "alert": condition.alert,
        "subject": each.subject,
        "summary": language(condition.summary),
        "meaning": condition.meaning,
        "causes": list(condition.causes),
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
