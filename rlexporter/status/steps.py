"""What to do about a verdict, as numbered steps: stop or go on, a first look by a command, and what mends it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlexporter.catalog.alerts import RUN_FAILED, RUN_STALLED, PrometheusAlert
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.catalog.runbooks import LABELS, runbook
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.model.condition import Severity
from rlexporter.model.incident import ACT, Incident
from rlexporter.status.samples import Samples

ADDRESS = "{address}"
"""The place in a command for the address of the process, as whoever reads it reaches it."""
PID = "{pid}"
"""The place for the number of the process."""

SAID = ("stop", "resume", "stack")
"""The ids of steps that a verdict says with the run's own checkpoint or process."""
_SETTING = re.compile(r"`(\w+)`")
_MOST = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. ``command``: what to type for it; empty for none."""

    text: str
    command: str = ""


def of_runbook(
    alert: str, condition: str, samples: Samples, language: Language = ENGLISH, without: Sequence[str] = ()
) -> list[str]:
    """Return the steps of a runbook for this condition and the algorithm of the run, with its values of the settings.

    Where it is not known which of these the run is, all are named. ``without``: ids of steps that are left out.
    """
    algorithm = samples.snapshot.family or samples.info("rl_run_info").get("algorithm", "")
    book = runbook(alert)
    fitting = []
    for step in book.steps_of(condition):
        told = book.told(step, language.code)
        if algorithm not in LABELS:
            told = step.named(told)
        elif step.algorithms and algorithm not in step.algorithms:
            continue
        if step.id not in without:
            fitting.append(_with_values(told, samples, language))
    return fitting


def _with_values(text: str, samples: Samples, language: Language) -> str:
    """Add what a setting is now behind its name, where the run says it."""

    def named(setting: re.Match[str]) -> str:
        value = samples.value("rl_hyperparameter", setting[1])
        return (
            setting[0]
            if value is None
            else language("{setting} ({value} in this run)", setting=setting[0], value=f"{value:g}")
        )

    return _SETTING.sub(named, text)


def of_incident(incident: Incident, word: str, samples: Samples, language: Language = ENGLISH) -> list[Step]:
    """Return what to do about an incident that speaks; ``word``: what all of them say of the run."""
    condition = CONDITION_NAMED[incident.condition]
    mend = of_runbook(condition.alert, condition.name, samples, language, without=SAID)
    first = _stop(samples, language) if word == ACT else _take_care(incident, samples, language)
    return _numbered(first, _look(condition.related, samples, language), mend)


def of_stall(samples: Samples, language: Language = ENGLISH) -> list[Step]:
    """Return what to do about a run that hangs."""
    first = Step(language("Leave it running for now: you can see what it waits for only while it hangs."))
    pid = PID if samples.info("rl_run_info").get("trainer") else "PID"  # this process trains, or only follows a log
    look = Step(language("See where each thread waits, on its machine:"), f"py-spy dump --pid {pid}")
    return _numbered(first, look, of_process(RUN_STALLED, samples, language, without=SAID))


def of_failure(samples: Samples, language: Language = ENGLISH) -> list[Step]:
    """Return what to do about a run that has ended with an exception."""
    return _numbered(_stop(samples, language), None, of_process(RUN_FAILED, samples, language, without=SAID))


def of_process(
    alert: PrometheusAlert, samples: Samples, language: Language = ENGLISH, without: Sequence[str] = ()
) -> list[str]:
    """Return the steps of the runbook of an alert on the run's process."""
    return of_runbook(alert.alert, alert.condition, samples, language, without)


def _numbered(first: Step, look: Step | None, mend: Sequence[str]) -> list[Step]:
    begun = [first, *([look] if look else [])]
    left = _MOST - len(begun)
    return [*begun, *(Step(text) for text in mend[:left])]


def _take_care(incident: Incident, samples: Samples, language: Language) -> Step:
    """Return what to do about what nobody need stop a run for; what was critical may have left its mark."""
    over = samples.snapshot.state is not None and samples.snapshot.state.over
    first = language(
        "Look at this before you use its model." if over else "Let the run continue, and look at it today."
    )
    good = samples.value("rl_last_good_checkpoint_step")
    if incident.severity is not Severity.CRITICAL or good is None or good >= incident.since:
        return Step(first)
    then = language("If it has done harm, resume from {checkpoint}.", checkpoint=_checkpoint(good, samples, language))
    return Step(language.together([first, then]))


def _checkpoint(step: float, samples: Samples, language: Language) -> str:
    """Return the newest good checkpoint, of ``step``, by its folder; where nobody looks, as transformers names it."""
    if samples.snapshot.good_folder:
        return f"`{samples.snapshot.good_folder}`"
    if samples.snapshot.framework:
        return language("the checkpoint of step {step}", step=f"{step:.0f}")
    return f"`checkpoint-{step:.0f}`"


def _stop(samples: Samples, language: Language) -> Step:
    over = samples.snapshot.state is not None and samples.snapshot.state.over
    good = samples.value("rl_last_good_checkpoint_step")
    first = language("Do not use its last weights." if over else "Stop the run.")
    if good is not None:
        name = _checkpoint(good, samples, language)
        then = language("Resume from {checkpoint}, which was written before this began.", checkpoint=name)
    elif samples.snapshot.earlier_folder:
        name = f"`{samples.snapshot.earlier_folder}`"
        then = language("Resume from {checkpoint}, which an attempt before has kept as good.", checkpoint=name)
    elif samples.value("rl_last_checkpoint_step") is not None:
        then = language("No checkpoint is left from before this began, so start from scratch.")
    else:
        then = _none_written(samples, language)
    return Step(language.together([first, then]))


def _none_written(samples: Samples, language: Language) -> str:
    every = samples.value("rl_hyperparameter", "save_steps")
    if every is None:  # a loop of one's own, or one that saves by epochs
        return language("No checkpoint is known: start again, and save some along the way.")
    if every == 0:
        return language("No checkpoint was written, since `save_strategy` is `no`: set it, and start again.")
    text = language(
        "No checkpoint was written: set `save_steps`, and start again."
        if every <= (samples.step or 0)
        else "No checkpoint was written yet: lower `save_steps`, and start again."
    )
    return _with_values(text, samples, language)


def _look(related: Sequence[str], samples: Samples, language: Language) -> Step | None:
    """Return how to see the numbers beside it; none once the process may be gone."""
    known = [name for name in related if samples.of(name)]
    if not known or samples.snapshot.state is None or samples.snapshot.state.over:
        return None
    names = known[0] if len(known) == 1 else f"({'|'.join(known)})"
    return Step(language("Look at the numbers beside it:"), f"curl -s {ADDRESS}/metrics | grep -E '^{names}'")
