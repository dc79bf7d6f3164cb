"""Which condition explains which: the one declaration that the judge, `check`, Prometheus and Alertmanager follow.

Between families it is the table `INHIBITIONS`. Among non-finite values it is the order in which a step computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

from rlexporter.conditions.table import CONDITIONS
from rlexporter.model.condition import Condition, Family, Limit, Severity

INHIBITIONS: tuple[tuple[tuple[Family, ...], tuple[Family, ...]], ...] = (
    (
        (Family.NONFINITE,),
        (
            *(Family.GRAD, Family.GRAD_DEAD, Family.REWARD_DROP, Family.REWARD_FLAT, Family.PLATEAU),
            *(Family.EVALUATION, Family.VALUE, Family.LENGTH, Family.TRUNCATION, Family.WEIGHTS),
        ),
    ),
    (
        (Family.DATA, Family.OBJECTIVE),
        (
            *(Family.POLICY_STEP, Family.GRAD, Family.GRAD_DEAD, Family.KL_HIGH, Family.KL_NEGATIVE),
            *(Family.ENTROPY_LOW, Family.ENTROPY_HIGH, Family.REWARD_DROP, Family.REWARD_FLAT, Family.LENGTH),
            *(Family.TRUNCATION, Family.PLATEAU, Family.WEIGHTS, Family.VALUE),
        ),
    ),
    (
        (Family.KL_NEGATIVE,),
        (
            *(Family.POLICY_STEP, Family.GRAD, Family.GRAD_DEAD, Family.KL_HIGH, Family.ENTROPY_LOW),
            *(Family.ENTROPY_HIGH, Family.REWARD_DROP, Family.REWARD_FLAT, Family.LENGTH, Family.TRUNCATION),
            *(Family.PLATEAU, Family.WEIGHTS, Family.VALUE),
        ),
    ),
    ((Family.OPTIMIZER,), (Family.GRAD, Family.GRAD_DEAD, Family.WEIGHTS, Family.PLATEAU)),
    ((Family.ADVANTAGE,), (Family.GRAD_DEAD, Family.PLATEAU)),
    ((Family.ENTROPY_LOW,), (Family.REWARD_FLAT, Family.LENGTH, Family.PLATEAU, Family.GRAD_DEAD)),
    (
        (Family.POLICY_STEP, Family.GRAD, Family.LR),
        (Family.WEIGHTS,),
    ),
    (
        (Family.LR,),
        (Family.OPTIMIZER, Family.REWARD_FLAT),
    ),
    (
        (Family.POLICY_STEP, Family.GRAD, Family.LR, Family.WEIGHTS),
        (
            *(Family.KL_HIGH, Family.ENTROPY_LOW, Family.ENTROPY_HIGH, Family.REWARD_DROP, Family.LENGTH),
            *(Family.PLATEAU, Family.EVALUATION),
        ),
    ),
    ((Family.REWARD_JUMP,), (Family.VALUE, Family.GRAD, Family.POLICY_STEP, Family.WEIGHTS, Family.KL_HIGH)),
    ((Family.TRUNCATION,), (Family.LENGTH,)),
    ((Family.REWARD_FLAT,), (Family.REWARD_DROP, Family.PLATEAU, Family.GRAD_DEAD)),
    ((Family.STALL,), (Family.SLOW,)),
)
"""The families that are causes, each with its symptoms."""
FATAL = Family.NONFINITE
"""A run that fails soon after one of these began, while it holds, died of it: sampling from NaN weights raises."""
FAILURE = ("run_failed", Severity.CRITICAL.value)
"""The key of a run's failure among the symptoms, as if it were a condition of the run."""
WAKE = 20
"""For so many steps a cause explains what begins after it: most conditions look at no more."""
HARMLESS = (Family.SLOW, Family.STALL, Family.PLATEAU, Family.EVALUATION)
"""The families whose warnings are never the cause of something critical: they say nothing about an update."""
NONFINITE_CONDITIONS = tuple(condition.name for condition in CONDITIONS if condition.family is FATAL)
"""The conditions on values that are no numbers, in the order of a step: an earlier one causes those after it."""

_CAUSES_OF: Mapping[Family, frozenset[Family]] = {
    symptom: frozenset(cause for causes, symptoms in INHIBITIONS if symptom in symptoms for cause in causes)
    for _, family_symptoms in INHIBITIONS
    for symptom in family_symptoms
}
_FAMILIES = tuple(TopologicalSorter(_CAUSES_OF).static_order())
_WORSE = (Severity.INFO, Severity.WARNING, Severity.CRITICAL).index
_PLACES = {condition.name: place for place, condition in enumerate(CONDITIONS)}

Place = tuple[int, float, int]
"""The place of a limit in the order of causes: its family, its condition, its severity."""


def place(condition: Condition, limit: Limit, *, before: str = "") -> Place:
    """Return where a limit stands in the order of causes.

    ``before``: just before the condition of this name, which is of its family.
    """
    family = _FAMILIES.index(condition.family) if condition.family in _FAMILIES else len(_FAMILIES)
    among = _PLACES[before] - 0.5 if before else _PLACES.get(condition.name, len(_PLACES))
    return family, among, -_WORSE(limit.severity)


def may_explain(cause: tuple[Condition, Limit], symptom: tuple[Condition, Limit]) -> bool:
    """Return True if ``cause`` hides ``symptom`` where it comes before it: never what is worse than itself.

    Two limits of one family explain each other only among non-finite values, and where both are of one condition.
    """
    (first, its), (second, other) = cause, symptom
    if _WORSE(its.severity) < _WORSE(other.severity):
        return False
    if first.name == second.name:
        return its.severity is not other.severity
    if first.family is second.family:
        return first.family is FATAL
    return first.family in _CAUSES_OF.get(second.family, ())


def foretells(cause: tuple[Condition, Limit], symptom: tuple[Condition, Limit]) -> bool:
    """Return True if ``symptom`` may be certain before ``cause``, which then hides it: never what is worse than itself.

    The cause takes longer to prove, as a reward that is the same for all does: its first step costs the value function
    a spike. Or it says what the symptom is: the shortest completions are far from the reference.
    """
    (first, its), (second, other) = cause, symptom
    return second.name in first.foretold_by and _WORSE(its.severity) >= _WORSE(other.severity)
