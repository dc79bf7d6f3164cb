"""The verdict on a run: fine, look or act, why, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlexporter.catalog.alerts import RUN_FAILED, RUN_STALLED
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.conditions.causes import FAILURE
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.model.condition import Severity
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident, Standing, worst
from rlexporter.model.snapshot import ON_CRITICAL, RunState
from rlexporter.status import steps
from rlexporter.status.account import curve, runbook, told
from rlexporter.status.samples import Samples
from rlexporter.status.steps import Step

LEAST_STEPS = 3
"""A run of fewer steps is too short to judge."""
UNKNOWN = "unknown"
STUCK = "stuck"
"""The state, for a reader, of a run that should have made a step by now."""

_ENDED = {
    RunState.FINISHED: "The run has finished",
    RunState.STOPPED: "The run was stopped",
    RunState.PREEMPTED: "The run was told to stop (SIGTERM)",
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
    steps: list[Step] = field(default_factory=list)
    """What to do, in this order."""
    actions: list[str] = field(default_factory=list)
    """Things that may mend it, the best first."""
    runbook: str = ""
    curve: dict[str, Any] | None = None
    """The series whose curve shows it: ``series`` and ``labels``."""


def verdict(samples: Samples, now: float, language: Language = ENGLISH) -> Verdict:
    """Return the verdict on a run; ``now``: seconds since the epoch.

    Its text and its actions are in ``language``. A failed or hanging process comes first, unless an incident explains
    it; then what the run's incidents say.
    """
    incidents = samples.snapshot.incidents
    speaking = [incident for incident in incidents if incident.speaks]
    of_process, of_incidents = _of_process(samples, now, language), _of_incidents(speaking, samples, language)
    parts = [part for part in (of_process, of_incidents) if part is not None]
    if of_incidents is not None and samples.value("rl_condition_symptom", *FAILURE) == 1.0:
        parts.reverse()
    parts.sort(key=lambda part: -WORDS.index(part.word))
    first = parts[0] if parts else Verdict(FINE, "ok", [], _all_pass(samples, language))
    texts = [part.text for part in parts]
    if not speaking and first.word == FINE:
        texts.append(_all_pass(samples, language))
        over = [incident for incident in incidents if incident.severity is Severity.CRITICAL and not incident.cause]
        if over:
            last = max(over, key=lambda incident: incident.step)
            texts += [language("Something was critical earlier."), told(last, samples, language)]
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
        return Verdict(LOOK, UNKNOWN, [], language("The state of the run is unknown."))
    if is_stalled(samples, now):
        return Verdict(
            *(ACT, "stalled", [], _stall(samples, now, language)),
            steps.of_stall(samples, language),
            steps.of_process(RUN_STALLED, samples, language),
            runbook(RUN_STALLED.alert),
        )
    exception = samples.info("rl_run_exception_info").get("exception", "")
    if state is RunState.FAILED:
        ended = language(
            "The run has failed with {exception}" if exception else "The run has failed", exception=exception
        )
        return Verdict(
            *(ACT, "failed", [], _ended(samples, ended, language)),
            steps.of_failure(samples, language),
            steps.of_process(RUN_FAILED, samples, language),
            runbook(RUN_FAILED.alert),
        )
    if state.over:
        ended = language("The run was stopped by on_critical" if exception == ON_CRITICAL else _ENDED[state])
        return Verdict(FINE, state.value, [], _ended(samples, ended, language))
    if not samples.value("rl_steps_total"):
        evaluated = samples.of("rl_eval_timestamp_seconds")
        text = language("Nothing has been trained yet, only evaluated." if evaluated else "No step has finished yet.")
        return Verdict(FINE, "starting", [], text)
    return None


def _of_incidents(speaking: Sequence[Incident], samples: Samples, language: Language) -> Verdict | None:
    if not speaking:
        return None
    first, word = speaking[0], worst(speaking)
    condition = CONDITION_NAMED[first.condition]
    left = any(incident.standing is not Standing.OVER for incident in speaking[1:])
    return Verdict(
        *(word, "condition", [], told(first, samples, language, followed=left)),
        steps.of_incident(first, word, samples, language),
        steps.of_runbook(condition.alert, condition.name, samples, language),
        runbook(condition.alert),
        curve(first, samples),
    )


def _all_pass(samples: Samples, language: Language) -> str:
    """Return how many checks there were; of a run that has ended too soon that it cannot be judged."""
    state, steps_done = samples.snapshot.state, samples.value("rl_steps_total")
    if state is not None and state.over and steps_done is not None and steps_done < LEAST_STEPS:
        return language("It is too short to judge: fewer than {count} steps.", count=str(LEAST_STEPS))
    judged = sum(value == 1.0 for value in samples.of("rl_condition_judged").values())
    return language("All {count} checks pass.", count=str(judged)) if judged else ""


def _stall(samples: Samples, now: float, language: Language) -> str:
    since, limit = age(samples, now) or 0.0, samples.value("rl_stall_after_seconds") or 0.0
    phase = next((labels[0] for labels, value in samples.of("rl_phase").items() if value == 1.0), "")
    text = language(
        "The run is stuck: its last step ended {time} ago (limit: {limit})."
        if samples.value("rl_steps_total")
        else "The run is stuck: it started {time} ago and has not finished a step (limit: {limit}).",
        time=span(since, language),
        limit=span(limit, language),
    )
    return language.together([text, language("It is in its {phase} phase.", phase=phase) if phase else ""])


def _ended(samples: Samples, ended: str, language: Language) -> str:
    if samples.step is None:
        return language("{ended}.", ended=ended)
    return language("{ended} after step {step}.", ended=ended, step=str(samples.step))
