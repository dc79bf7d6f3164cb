"""Incidents: what went wrong in a run, with what, since when, because of what, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rlexporter.model.condition import Condition, Limit, Severity

FINE, LOOK, ACT = WORDS = ("fine", "look", "act")
"""The words of a verdict, the worst last; `rl_run_verdict` serves their positions."""


Key = tuple[str, str]
"""The name of a condition, and a severity."""


class Standing(str, Enum):
    """How an incident stands, which `rl_incident` serves as 2, 1 and 0."""

    HOLDS = "holds"
    EASED = "eased"
    """The number is within its limit again, but not at the run's own old level."""
    OVER = "over"

    @property
    def number(self) -> int:
        """Return the value of `rl_incident`."""
        return {"holds": 2, "eased": 1, "over": 0}[self.value]


class Transition(NamedTuple):
    """The change of one limit of a condition in a step."""

    condition: Condition
    limit: Limit
    threshold: float
    """The limit in force, in the unit of the signal; NaN in a finding."""
    standing: Standing
    began: bool
    value: float
    series: str
    """The series at which the signal was read."""
    unit: str
    subject: str
    """What it is about, where the signal is of several things."""
    since: int
    """The step since which the number has been beyond the limit."""
    judged: bool = True
    """False if it is not judged any more: the signal is read elsewhere."""
    changed: bool = True
    """True if more than the threshold has changed: judged for the first time, begun, or ended."""
    onset: int | None = None
    """The first step in which what began may have begun: none of the numbers that show it is of an earlier one. None
    if nothing began."""

    @property
    def key(self) -> Key:
        """Return the name of the condition, and the severity of the limit."""
        return self.condition.name, self.limit.severity.value

    @property
    def active(self) -> bool:
        """Return True while the condition holds."""
        return self.standing is Standing.HOLDS


@dataclass(frozen=True, slots=True)
class Incident:
    """A condition that has begun in a run. There is one for each condition: its newest."""

    condition: str
    severity: Severity
    """The worst that is not over."""
    standing: Standing
    word: str
    """What it says of the run now: `ACT`, `LOOK`, or `FINE` for one that does not speak."""
    since: int
    """The step since which the number has been beyond its limit."""
    began: int
    """The step in which the first limit of the condition was certain."""
    step: int
    """The step in which it was certain at this severity; ``time``, ``value`` and ``threshold`` are of it."""
    time: float
    value: float
    threshold: float
    signal: str = ""
    """The number that is judged, by its name in `rl_signal`."""
    series: str = ""
    """The series that the value is read from."""
    unit: str = ""
    """The unit of ``value`` and ``threshold``."""
    subject: str = ""
    """What it is about: a reward function; empty for the run as a whole."""
    cause: str = ""
    """The condition that explains it; empty for one that is no symptom."""
    count: int = 1
    """How often it has begun at this severity."""
    over: int | None = None
    """The step in which it was over; None for one that is not."""

    @property
    def speaks(self) -> bool:
        """Return True if the verdict names it."""
        return not self.cause and self.word != FINE


def worst(incidents: Sequence[Incident]) -> str:
    """Return what ``incidents`` say of the run together."""
    return max((incident.word for incident in incidents if incident.speaks), key=WORDS.index, default=FINE)
