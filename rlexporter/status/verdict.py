"""The verdict on a run: fine, look or act, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlexporter.catalog import RUN_FAILED, RUN_STALLED
from rlexporter.catalog.causes import FAILURE, FATAL, HARMLESS, WAKE, Place
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.model.condition import Severity
from rlexporter.model.snapshot import RunState
from rlexporter.status import sentences
from rlexporter.status.conditions import SEVERITIES, Began, runbook
from rlexporter.status.samples import Samples

FINE, LOOK, ACT = WORDS = ("fine", "look", "act")
"""The words of a verdict, the worst last."""
UNKNOWN = "unknown"

_WORD = {Severity.CRITICAL: ACT, Severity.WARNING: LOOK, Severity.INFO: FINE}
_ENDED = {
    RunState.FINISHED: sentences.FINISHED,
    RunState.STOPPED: sentences.STOPPED,
    RunState.PREEMPTED: sentences.PREEMPTED,
}
_OF_NAN = "nonfinite"
_PROCESS = ("starting", UNKNOWN, "finished", "stopped", "preempted")
"""The codes under which nothing is wrong with the process."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to: how is this run?"""

    word: str
    code: str
    """The reason, for programs; docs/api.md lists them."""
    text: str
    conditions: tuple[str, ...] = ()
    """The conditions that speak, the likeliest cause first, then the worst."""
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


def verdict(samples: Samples, found: Sequence[Began], now: float, language: Language = ENGLISH) -> Verdict:
    """Return the verdict on a run whose conditions ``found`` have begun; ``now``: seconds since the epoch.

    Its text and its actions are in ``language``.

    Symptoms do not speak. A failed or hanging process comes first, unless a condition explains it.
    """
    speaking = spoken(found)
    process, condition = _of_process(samples, now, language), _of_conditions(speaking, language)
    explained = samples.value("rl_condition_symptom", *FAILURE) == 1.0
    parts = [part for part in (process, condition, _of_nan(samples, speaking, language)) if part is not None]
    if explained and condition is not None:
        parts = [condition, *(part for part in parts if part is not condition)]
    parts.sort(key=lambda part: -WORDS.index(part.word))
    worst = parts[0] if parts else _nothing(samples, language)
    word = worst.word
    texts = [part.text for part in parts]
    if condition is None and word == FINE:
        texts += [_nothing(samples, language).text, *_was_critical(found, language)]
    return Verdict(
        word,
        _code(process, worst),
        language.together([*texts, *_checkpoint(samples, word, language)]),
        tuple(dict.fromkeys(each.condition.name for each in speaking)),
        tuple(map(language, worst.actions)),
        runbook(worst.alert) if worst.alert else "",
    )


def spoken(found: Sequence[Began]) -> list[Began]:
    """Return the conditions that speak: no symptom, more than information, and in force; the likeliest cause first.

    The others follow, the worst first, among them what is not finite, then what began first with any of its limits. A
    cause may be over, and may be less bad than what it led to.
    """
    told = [each for each in found if not each.symptom and each.limit.severity is not Severity.INFO]
    since: dict[str, int] = {}
    for each in told:
        since[each.condition.name] = min(each.step, since.get(each.condition.name, each.step))

    def order(each: Began) -> tuple[int, bool, int, Place]:
        finite = each.condition.family is not FATAL
        began = since[each.condition.name] if finite else 0
        return SEVERITIES.index(each.limit.severity.value), finite, began, each.place

    speaking = sorted((each for each in told if each.in_force), key=order)
    cause = _cause(told, speaking, since)
    if cause is None:
        return speaking
    # All of its limits that are in force come first, or the one that is over.
    own = [each for each in speaking if each.condition is cause.condition] or [cause]
    return [*own, *(each for each in speaking if each.condition is not cause.condition)]


def _cause(told: Sequence[Began], speaking: Sequence[Began], since: Mapping[str, int]) -> Began | None:
    """Return what began first of the critical conditions and the warnings shortly before; None if nothing is critical.

    None too where something is not finite: that is the cause.
    """
    critical = [each for each in speaking if each.limit.severity is Severity.CRITICAL]
    if not critical or critical[0].condition.family is FATAL:
        return None
    first = min(since[each.condition.name] for each in critical)
    causal = [each for each in told if each.condition.family not in HARMLESS]
    before = [each for each in causal if since[each.condition.name] >= first - WAKE]
    return min([*critical, *before], key=lambda each: (since[each.condition.name], each.place))


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


def _of_conditions(speaking: Sequence[Began], language: Language) -> _Part | None:
    if not speaking:
        return None
    first = speaking[0]
    worst = min((each.limit.severity for each in speaking), key=lambda each: SEVERITIES.index(each.value))
    began = sentences.BEGAN if first.holds else sentences.BEGAN_AND_OVER
    texts = [language(first.condition.summary), language(began, step=str(first.step))]
    others = len({each.condition.name for each in speaking} - {first.condition.name})
    if others:
        texts.append(language(sentences.ONE_OTHER if others == 1 else sentences.OTHERS, count=str(others)))
    text = language.together(texts)
    return _Part(_WORD[worst], "condition", text, first.condition.remedies, first.condition.alert)


def _of_nan(samples: Samples, speaking: Sequence[Began], language: Language) -> _Part | None:
    """Return what is left of NaN and infinities that are over: what was learnt from them stays learnt."""
    count = samples.faults
    if not count or any(each.condition.family.label == _OF_NAN for each in speaking):
        return None
    some = sentences.ONE_NONFINITE if count == 1 else sentences.SOME_NONFINITE
    return _Part(LOOK, _OF_NAN, language(some, count=f"{count:.0f}"))


def _nothing(samples: Samples, language: Language) -> _Part:
    judged = sum(value == 1.0 for value in samples.of("rl_condition_judged").values())
    return _Part(FINE, "ok", language(sentences.NOTHING_HOLDS, count=str(judged)) if judged else "")


def _was_critical(found: Sequence[Began], language: Language) -> list[str]:
    """Return what was critical last and is over, but for what NaN says itself."""
    over = [each for each in found if each.limit.severity is Severity.CRITICAL and not each.symptom]
    last = max(over, key=lambda each: each.step, default=None)
    if last is None or last.condition.family is FATAL:
        return []
    began = language(sentences.BEGAN_AND_OVER, step=str(last.step))
    return [language(sentences.WAS_CRITICAL), language(last.condition.summary), began]


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
