"""Makes the incidents of a run of the changes of its limits: what went wrong, because of what, and how it stands.

A symptom begins in the same step as its cause, while the cause holds, or soon after it began. What began earlier is no
symptom, but for what foretells a cause, and what outlives its cause is one no more.

Nothing is forgotten: until it is over, an incident is worth a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rlexporter.conditions import table
from rlexporter.conditions.causes import FAILURE, FATAL, HARMLESS, WAKE, Place, foretells, may_explain, place
from rlexporter.conditions.table import CONDITION_NAMED
from rlexporter.conditions.view import View
from rlexporter.model.condition import Condition, Family, Limit, Severity
from rlexporter.model.incident import ACT, FINE, LOOK, WORDS, Incident, Key, Standing, Transition, worst

_WEIGHTS = "rl_weight_norm"
_OF_REWARDS = ("nonfinite_reward", "reward_lost", "reward_function_lost")
"""The conditions that no weight explains: a reward function reads text."""


class Mark(NamedTuple):
    """Says whether a limit is a symptom: ``cause`` is None if it is not."""

    key: Key
    cause: Key | None


class _Begun:
    """A limit of a condition that has begun, once or again."""

    __slots__ = (
        *("at", "cause", "condition", "count", "ended", "first", "key", "limit", "look", "onset", "place", "since"),
        *("over", "standing", "step", "time", "transition"),
    )

    def __init__(self, transition: Transition, at: int, look: int, where: Place) -> None:
        self.condition = transition.condition
        self.limit = transition.limit
        self.key = transition.key
        self.transition = transition
        self.at = at
        self.look = look
        self.place = where
        self.step = self.first = 0
        """The steps in which it was certain: lately, and for the first time since it was over."""
        self.since = transition.since
        self.onset = transition.since if transition.onset is None else transition.onset
        self.time = 0.0
        self.count = 1
        self.standing = Standing.HOLDS
        self.ended: int | None = None
        self.over: int | None = None
        self.cause: Key | None = None
        """The cause of all: one that is no symptom itself."""

    @property
    def active(self) -> bool:
        return self.standing is Standing.HOLDS

    def go_on(self, before: _Begun | None) -> None:
        """Take over what was ``before``: one that was not over goes on."""
        self.first = self.step
        if before is not None:
            self.count += before.count
            if before.standing is not Standing.OVER and before.transition.subject == self.transition.subject:
                self.first, self.since = before.first, before.since
                self.onset = min(self.onset, before.onset)

    def word(self, step: int) -> str:
        """Return what it says of the run in ``step``."""
        return word(self.limit.severity, self.standing, step - self.step)


def word(severity: Severity, standing: Standing, age: int) -> str:
    """Return what an incident says of its run that was certain ``age`` steps ago.

    One that began lately keeps its word, so that a flapping condition is shown as steady.
    """
    if standing is Standing.HOLDS or 0 <= age < WAKE:
        return {Severity.CRITICAL: ACT, Severity.WARNING: LOOK}.get(severity, FINE)
    return LOOK if severity is not Severity.INFO and standing is Standing.EASED else FINE


class Incidents:
    """Follows one run: which limits have begun, and which of them explains which."""

    def __init__(self) -> None:
        self._begun: dict[Key, _Begun] = {}
        self._symptoms: dict[Key, _Begun] = {}
        self._fading = False
        """True if the cause of a symptom does not hold any more, so that the symptom may outlive it."""
        self._now = 0
        self._looks = 0
        self._lapses: int | None = None
        """The first step in which something that began lately did not begin lately any more."""
        self.all: tuple[Incident, ...] = ()
        """What has gone wrong in the run: what speaks first, with the likeliest cause before all else."""
        self.critical: dict[Key, int] = {}
        """The critical limits that hold, each with the first step in which what went wrong may have begun."""

    def see(self, transitions: Sequence[Transition], view: View, time: float) -> list[Mark]:
        """Take what has changed in a step, and return which limits became symptoms, and which stopped being one.

        ``time``: seconds since the epoch.
        """
        self._now += view.advanced
        self._looks += 1
        lapsed = self._lapses is not None and view.step >= self._lapses
        if not (transitions or self._fading or lapsed):  # nearly every step
            return []
        changed = [each for each in transitions if each.changed and (each.began or each.key in self._begun)]
        if not (changed or self._fading or lapsed):
            return []
        marks = self._marks(changed, view, time)
        causes = {symptom.cause for symptom in self._symptoms.values()}
        self._fading = any(cause is not None and not self._begun[cause].active for cause in causes)
        if marks or lapsed or changed:
            self._tell(view.step)
        return marks

    def _marks(self, transitions: Sequence[Transition], view: View, time: float) -> list[Mark]:
        new = []
        for transition in transitions:
            key = transition.key
            if transition.began:
                begun = _Begun(transition, self._now, self._looks, _place(transition, view))
                begun.step, begun.time = view.step, time
                begun.go_on(self._begun.get(key))
                self._begun[key] = begun
                new.append(begun)
            else:
                begun = self._begun[key]
                if begun.active and not transition.active:
                    begun.ended = self._now
                begun.standing = transition.standing
                begun.over = view.step if transition.standing is Standing.OVER else None
        new.sort(key=lambda begun: begun.place)  # a symptom takes over the cause of its own cause
        marks = [self._mark(begun) for begun in new]
        late = self._marked_late() if new and not view.advanced else ()
        return [*marks, *late, *self._foretelling(new), *self._released()]

    def _tell(self, step: int) -> None:
        """Rebuild the incidents as they stand in ``step``."""
        by_name: dict[str, list[_Begun]] = {}
        for begun in self._begun.values():
            by_name.setdefault(begun.condition.name, []).append(begun)
        self.all = ranked(_incident(limits, step) for limits in by_name.values())
        lately = [begun.step + WAKE for begun in self._begun.values() if step < begun.step + WAKE]
        self._lapses = min(lately, default=None)
        self.critical = {
            key: self._onset(begun, by_name)
            for key, begun in self._begun.items()
            if begun.active and begun.limit.severity is Severity.CRITICAL
        }

    def _onset(self, begun: _Begun, by_name: Mapping[str, Sequence[_Begun]]) -> int:
        """Return the first step in which an incident, or its cause, may have begun; a milder limit shows it too."""
        names = {begun.condition.name, *([begun.cause[0]] if begun.cause else [])}
        limits = [each for name in names for each in by_name[name]]
        return min(
            each.onset
            for each in limits
            if each is begun or (each.standing is not Standing.OVER and each.limit.severity is not Severity.INFO)
        )

    def of_failure(self) -> Mark:
        """Return what explains that the run fails now: a recent critical non-finite value that still holds."""
        fatal = [
            begun
            for begun in self._begun.values()
            if begun.condition.family is FATAL
            and begun.limit.severity is Severity.CRITICAL
            and begun.active
            and self._now - begun.at <= WAKE
        ]
        first = min(fatal, key=lambda begun: (begun.at, begun.place), default=None)
        if first is None:
            return Mark(FAILURE, None)
        root = self._begun[first.cause or first.key]
        return Mark(FAILURE, root.key if root.active else None)

    def _marked_late(self) -> list[Mark]:
        """Find what began in this step, and is explained by what only its later data show; with its own symptoms."""
        early = [begun for begun in self._begun.values() if begun.at == self._now and begun.look < self._looks]
        marks = [self._mark(begun) for begun in early if begun.cause is None]
        moved = {mark.key: mark.cause for mark in marks if mark.cause is not None}
        for begun in early:
            if begun.cause in moved:
                begun.cause = moved[begun.cause]
        return [Mark(begun.key, begun.cause) for begun in early if begun.cause in moved.values()]

    def _foretelling(self, new: Sequence[_Begun]) -> list[Mark]:
        """Find the symptoms that were certain shortly before their cause, which begins now and is not a symptom."""
        marks = []
        for cause in new:
            for other in self._begun.values() if cause.cause is None else ():
                lately = other is not cause and other.cause is None and self._now - other.at <= WAKE
                if lately and self._foretold(cause, other):
                    own = [symptom for symptom in self._symptoms.values() if symptom.cause == other.key]
                    marks += [self._set(symptom, cause.key) for symptom in (other, *own)]
        return marks

    def _foretold(self, cause: _Begun, symptom: _Begun) -> bool:
        """Return True if ``symptom`` is one of ``cause``, which began no later and took longer to be certain."""
        pair = (cause.condition, cause.limit), (symptom.condition, symptom.limit)
        if foretells(*pair):
            return True
        return cause.condition is not symptom.condition and _is_before(cause, symptom) and may_explain(*pair)

    def _mark(self, begun: _Begun) -> Mark:
        causes = [other for other in self._begun.values() if self._explains(other, begun)]
        first = min(causes, key=lambda cause: (cause.at, cause.place), default=None)
        return self._set(begun, None if first is None else first.cause or first.key)

    def _set(self, begun: _Begun, cause: Key | None) -> Mark:
        begun.cause = cause
        self._symptoms.pop(begun.key, None)
        if cause is not None:
            self._symptoms[begun.key] = begun
        return Mark(begun.key, cause)

    def _explains(self, cause: _Begun, symptom: _Begun) -> bool:
        if cause is symptom or cause.cause == symptom.key or not self._in_wake(cause):
            return False
        if self._came_through_the_weights(cause, symptom):
            return True
        if not _is_before(cause, symptom):
            return False
        same = cause.condition.family is symptom.condition.family
        if same and cause.place > symptom.place:
            return False
        pair = (cause.condition, cause.limit), (symptom.condition, symptom.limit)
        return may_explain(*pair) or foretells(*pair)

    def _came_through_the_weights(self, cause: _Begun, symptom: _Begun) -> bool:
        """Return True if ``cause`` has ended the weights after its step, and they what begins now."""
        if (
            symptom.condition.family is not FATAL
            or symptom.condition.name in _OF_REWARDS
            or not _spreads(cause.transition)
        ):
            return False
        is_weights = symptom.transition.series == _WEIGHTS  # which may be seen before the next step has a number
        before = cause.look < symptom.look if is_weights else cause.at < symptom.at
        return before and (cause.active or cause.ended == self._now) and self._now - cause.at <= WAKE

    def _in_wake(self, cause: _Begun) -> bool:
        return cause.active or self._now - cause.at <= WAKE

    def _released(self) -> list[Mark]:
        """Find the symptoms that have outlived their causes."""
        over = [
            symptom
            for symptom in self._symptoms.values()
            if symptom.active and symptom.cause is not None and not self._in_wake(self._begun[symptom.cause])
        ]
        for symptom in over:
            symptom.cause = None
            del self._symptoms[symptom.key]
        return [Mark(symptom.key, None) for symptom in over]


def _is_before(cause: _Begun, symptom: _Begun) -> bool:
    """Return True if ``cause`` began early enough to explain ``symptom``: a large gradient moves the next step only."""
    late = cause.condition.family is Family.GRAD and symptom.condition.family is not Family.GRAD
    return cause.transition.since + late <= symptom.transition.since


def _incident(limits: Sequence[_Begun], step: int) -> Incident:
    """Return the incident of a condition whose ``limits`` have begun: of the worst that is no symptom."""
    told = [begun for begun in limits if begun.cause is None and begun.limit.severity is not Severity.INFO]
    severities = [*Severity]

    def badness(begun: _Begun) -> tuple[int, int, int]:
        return WORDS.index(begun.word(step)), -severities.index(begun.limit.severity), begun.step

    shown = max(told or limits, key=badness)
    transition = shown.transition
    return Incident(
        shown.condition.name,
        shown.limit.severity,
        shown.standing,
        shown.word(step),
        since=min(begun.since for begun in told or limits),
        began=min(begun.first for begun in told or limits),
        step=shown.step,
        time=shown.time,
        value=transition.value,
        threshold=transition.threshold,
        signal=shown.condition.signal,
        series=transition.series,
        unit=transition.unit,
        subject=transition.subject,
        cause=shown.cause[0] if shown.cause else "",
        count=shown.count,
        over=shown.over,
    )


def _place(transition: Transition, view: View) -> Place:
    """Return the place of a limit that begins now among the causes of its step.

    The table of conditions has the order in which a step computes, but for `nonfinite`, which is of several numbers.
    """
    condition, limit = transition.condition, transition.limit
    if condition.name != "nonfinite":
        return place(condition, limit)
    at = table.place_of_nan(transition.series, view)
    if at < table.PLACES["rl_kl_per_token"]:
        return place(condition, limit, before="nonfinite_reward")
    return place(condition, limit, before="nonfinite_value_loss" if at < table.PLACES["rl_loss"] else "")


def _spreads(transition: Transition) -> bool:
    """Return True for what ends the weights by the next step, as long as it holds."""
    fatal = transition.condition.name in ("nonfinite", "nonfinite_value_loss")
    return fatal and (transition.series in table.PLACES or transition.condition.name != "nonfinite")


# The order in which a person should read the incidents of a run: the likeliest cause first


def ranked(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return ``incidents`` in the order in which a person should read them.

    First what speaks: the likeliest cause, then the worst, of these what holds, what is not finite, what began first.
    A cause may be over, and may be less bad than what it led to; it speaks too. Then what is over, the newest first,
    and last the symptoms.
    """
    ordered = list(incidents)
    cause = _cause(ordered)
    if cause is not None and cause.word == FINE:
        ordered.remove(cause)
        cause = replace(cause, word=LOOK)
        ordered.append(cause)

    def order(incident: Incident) -> tuple[bool, bool, bool, int, int, int, Place]:
        where = place(*_declared(incident))
        if not incident.speaks:
            return bool(incident.cause), True, True, 0, 0, -incident.step, where
        fatal = _declared(incident)[0].family is FATAL
        eased = incident.standing is Standing.EASED
        began = 0 if fatal else incident.began
        return False, False, incident is not cause, -WORDS.index(incident.word), 2 * eased + (not fatal), began, where

    return tuple(sorted(ordered, key=order))


def _cause(incidents: Sequence[Incident]) -> Incident | None:
    """Return what began first of the critical incidents and of what led to them; None if nothing is critical.

    A warning led to what began in the next `WAKE` steps, and so on, as long as it is not over: only the first of them
    may be. A cause begins with the first of its symptoms, and comes before those that foretold it. None too where
    something is not finite: that is the cause.
    """
    grave = [incident for incident in incidents if incident.severity is not Severity.INFO]
    told = [incident for incident in grave if not incident.cause]
    word = worst(told)
    critical = [incident for incident in told if incident.severity is Severity.CRITICAL and incident.word == word]
    if word == FINE or not critical or any(_declared(incident)[0].family is FATAL for incident in critical):
        return None
    began = min(incident.began for incident in critical)
    harmful = [incident for incident in grave if _declared(incident)[0].family not in HARMLESS]
    for incident in sorted(harmful, key=lambda incident: -incident.began):
        if incident.standing is not Standing.OVER and incident.began >= began - WAKE:
            began = min(began, incident.began)
    led = [incident for incident in harmful if not incident.cause and incident.began >= began - WAKE]

    def beginning(cause: Incident) -> tuple[int, Place]:
        begun = [incident.began for incident in grave if cause.condition in (incident.condition, incident.cause)]
        return min(begun), place(*_declared(cause))

    first = min([*critical, *led], key=beginning)
    foretold = [  # what began first may be certain before its cause is
        incident
        for incident in led
        if first.condition in _declared(incident)[0].foretold_by and abs(incident.began - first.began) <= WAKE
    ]
    return min(foretold, key=beginning, default=first)


def _declared(incident: Incident) -> tuple[Condition, Limit]:
    condition = CONDITION_NAMED[incident.condition]
    return condition, next(limit for limit in condition.limits if limit.severity is incident.severity)
