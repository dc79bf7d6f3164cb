"""The verdict on a run: fine, look or act, and why; and its incidents in the words of the catalogue. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlexporter.catalog.alerts import RUN_FAILED, RUN_STALLED, RUNBOOKS
from rlexporter.catalog.causes import FAILURE
from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.model.condition import Severity
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident, Standing, worst
from rlexporter.model.snapshot import RunState
from rlexporter.status.samples import Samples, number, whole

UNKNOWN = "unknown"
STUCK = "stuck"
"""The state, for a reader, of a run that should have made a step by now."""

_BEGAN = {
    Standing.HOLDS: "It began in step {step}.",
    Standing.EASED: "It began in step {step}. It is within its limit again, but not where it was before.",
    Standing.OVER: "It began in step {step}, and is over.",
}
_ENDED = {
    RunState.FINISHED: "The run has finished",
    RunState.STOPPED: "The run was stopped",
    RunState.PREEMPTED: "The run was told to end (SIGTERM)",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to: how is this run? Or a part of it, from one place."""

    word: str
    code: str
    """The reason, for programs; docs/api.md lists them."""
    conditions: list[str]
    """The conditions of the incidents that speak, the likeliest cause first, then the worst."""
    text: str
    actions: list[str] = field(default_factory=list)
    """Things to do, the best first."""
    runbook: str = ""


def verdict(samples: Samples, now: float, language: Language = ENGLISH) -> Verdict:
    """Return the verdict on a run; ``now``: seconds since the epoch.

    Its text and its actions are in ``language``. A failed or hanging process comes first, unless an incident explains
    it; then what the run's incidents say.
    """
    incidents = samples.snapshot.incidents
    speaking = [incident for incident in incidents if incident.speaks]
    of_process, of_incidents = _of_process(samples, now, language), _of_incidents(speaking, language)
    parts = [part for part in (of_process, of_incidents) if part is not None]
    if of_incidents is not None and samples.value("rl_condition_symptom", *FAILURE) == 1.0:
        parts.reverse()
    parts.sort(key=lambda part: -WORDS.index(part.word))
    first = parts[0] if parts else Verdict(FINE, "ok", [], _all_pass(samples, language))
    texts = [part.text for part in parts]
    if not speaking and first.word == FINE:
        texts += [_all_pass(samples, language), *_was_critical(incidents, language)]
    if first.word == ACT:
        texts.append(_checkpoint(samples, language))
    # The code of the worst part, unless the process says how it ended or begins.
    of_code = of_process if of_process is not None and (of_process.word == ACT or first.code == "ok") else first
    conditions = [incident.condition for incident in speaking]
    return replace(first, code=of_code.code, conditions=conditions, text=language.together(texts))


def age(samples: Samples, now: float) -> float | None:
    """Return the seconds since the last step ended, or since the start before the first one."""
    last = samples.value("rl_last_step_timestamp_seconds")
    return None if last is None else max(0.0, now - last)


def is_stalled(samples: Samples, now: float) -> bool:
    """Return True if the run should have made a step by now."""
    state, since, limit = samples.snapshot.state, age(samples, now), samples.value("rl_stall_after_seconds")
    return state is not None and not state.over and since is not None and limit is not None and since > limit


def span(seconds: float, language: Language = ENGLISH) -> str:
    """Return a time in words: ``95 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return language("{seconds} s", seconds=f"{seconds:.0f}")
    if seconds < 7200:
        return language("{minutes} min", minutes=f"{seconds / 60:.0f}")
    return language("{hours} h", hours=f"{seconds / 3600:.1f}")


def _of_process(samples: Samples, now: float, language: Language) -> Verdict | None:
    state = samples.snapshot.state
    if state is None:
        return Verdict(LOOK, UNKNOWN, [], language("The state of the run is not known."))
    if is_stalled(samples, now):
        actions = [language(text) for text in RUN_STALLED.remedies]
        return Verdict(ACT, "stalled", [], _stall(samples, now, language), actions, runbook(RUN_STALLED.alert))
    if state is RunState.FAILED:
        exception = samples.info("rl_run_exception_info").get("exception", "")
        ended = language(
            "The run has failed with {exception}" if exception else "The run has failed", exception=exception
        )
        actions = [language(text) for text in RUN_FAILED.remedies]
        return Verdict(ACT, "failed", [], _ended(samples, ended, language), actions, runbook(RUN_FAILED.alert))
    if state.over:
        return Verdict(FINE, state.value, [], _ended(samples, language(_ENDED[state]), language))
    if not samples.value("rl_steps_total"):
        evaluated = samples.of("rl_eval_timestamp_seconds")
        text = language(
            "Nothing has been trained yet, only evaluated." if evaluated else "The run has not ended a step yet."
        )
        return Verdict(FINE, "starting", [], text)
    return None


def _of_incidents(speaking: Sequence[Incident], language: Language) -> Verdict | None:
    if not speaking:
        return None
    first, others = CONDITION_NAMED[speaking[0].condition], len(speaking) - 1
    texts = [_told(speaking[0], language)]
    if others:
        wrong = language(
            "1 more thing is wrong." if others == 1 else "{count} more things are wrong.", count=str(others)
        )
        texts.append(wrong)
    actions = [language(text) for text in first.remedies]
    return Verdict(worst(speaking), "condition", [], language.together(texts), actions, runbook(first.alert))


def _told(incident: Incident, language: Language) -> str:
    """Return what went wrong, with what, since when, and how it stands."""
    summary = language(CONDITION_NAMED[incident.condition].summary)
    subject = language("It concerns {subject}.", subject=incident.subject) if incident.subject else ""
    began = language(_BEGAN[incident.standing], step=str(incident.since if incident.subject else incident.began))
    return language.together([summary, subject, began])


def _all_pass(samples: Samples, language: Language) -> str:
    judged = sum(value == 1.0 for value in samples.of("rl_condition_judged").values())
    return language("All {count} checks pass.", count=str(judged)) if judged else ""


def _was_critical(incidents: Sequence[Incident], language: Language) -> list[str]:
    """Return what was critical last and is over."""
    over = [incident for incident in incidents if incident.severity is Severity.CRITICAL and not incident.cause]
    last = max(over, key=lambda incident: incident.step, default=None)
    return [language("Something was critical earlier."), _told(last, language)] if last is not None else []


def _checkpoint(samples: Samples, language: Language) -> str:
    good, last = samples.value("rl_last_good_checkpoint_step"), samples.value("rl_last_checkpoint_step")
    if good is not None:
        return language("The last good checkpoint is that of step {step}.", step=f"{good:.0f}")
    return language("No checkpoint is known to be good." if last is not None else "There is no checkpoint.")


def _stall(samples: Samples, now: float, language: Language) -> str:
    since, limit = age(samples, now) or 0.0, samples.value("rl_stall_after_seconds") or 0.0
    phase = next((labels[0] for labels, value in samples.of("rl_phase").items() if value == 1.0), "")
    text = language(
        "The run makes no steps: its last step ended {time} ago, and {limit} is the limit."
        if samples.value("rl_steps_total")
        else "The run makes no steps: it began, without a step, {time} ago, and {limit} is the limit.",
        time=span(since, language),
        limit=span(limit, language),
    )
    return language.together([text, language("It is in the phase {phase}.", phase=phase) if phase else ""])


def _ended(samples: Samples, ended: str, language: Language) -> str:
    if samples.step is None:
        return language("{ended}.", ended=ended)
    return language("{ended} after step {step}.", ended=ended, step=str(samples.step))


def runbook(alert: str) -> str:
    """Return the address of the page about ``alert``."""
    return f"{RUNBOOKS}/{alert}.md"


def incidents_as_json(incidents: Sequence[Incident], language: Language = ENGLISH) -> list[dict[str, Any]]:
    """Return the entries of the document, with the texts in ``language``."""
    return [_incident(incident, language) for incident in incidents]


def _incident(incident: Incident, language: Language) -> dict[str, Any]:
    condition = CONDITION_NAMED[incident.condition]
    return {
        "name": condition.name,
        "severity": incident.severity.value,
        "alert": condition.alert,
        "subject": incident.subject,
        "summary": language(condition.summary),
        "meaning": condition.meaning,
        "causes": list(condition.causes),
        "actions": [language(text) for text in condition.remedies],
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
        "step": whole(incident.step),
        "timestamp": number(incident.time),
        "value": number(incident.value),
        "threshold": number(incident.threshold),
        "runbook": runbook(condition.alert),
    }
