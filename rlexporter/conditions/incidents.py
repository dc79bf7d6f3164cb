"""Tells causes from their symptoms: which limit began in the wake of which, on the clock of steps.

A symptom begins in the same step as its cause, while the cause holds, or soon after it began. What began earlier is no
symptom, and what outlives its cause is one no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlexporter.catalog.causes import FAILURE, FATAL, WAKE, Place, may_explain
from rlexporter.conditions.judge import Transition
from rlexporter.conditions.step_order import StepOrder
from rlexporter.conditions.view import View
from rlexporter.model.condition import Condition, Limit, Severity

_WEIGHTS = "nonfinite_weights"
_END_WEIGHTS = ("nonfinite_policy_loss", "nonfinite_value_loss", "nonfinite_loss", "nonfinite_grad")
"""The conditions that end the weights by the next step, as long as they hold: there the order of a step begins anew."""
_OF_REWARDS = ("nonfinite_reward", "reward_lost", "reward_function_lost")
"""The conditions that no weight explains: a reward function reads text."""

Key = tuple[str, str]
"""The name of a condition, and a severity."""


class Mark(NamedTuple):
    """The finding that a limit is a symptom, or (``cause`` is None) that it is none."""

    key: Key
    cause: Key | None


class _Begun:
    """A limit of a condition that has begun, once or again."""

    __slots__ = ("active", "at", "cause", "condition", "ended", "key", "limit", "look", "place")

    def __init__(self, condition: Condition, limit: Limit, at: int, look: int, where: Place) -> None:
        self.condition = condition
        self.limit = limit
        self.key = (condition.name, limit.severity.value)
        self.at = at
        self.look = look
        self.place = where
        self.active = True
        self.ended: int | None = None
        self.cause: Key | None = None
        """The cause of all: one that is no symptom itself."""


class Incidents:
    """Follows one run: which limits have begun, and which of them explains which."""

    def __init__(self) -> None:
        self._begun: dict[Key, _Begun] = {}
        self._symptoms: dict[Key, _Begun] = {}
        self._order = StepOrder()
        self._now = 0
        self._looks = 0

    def see(self, transitions: Sequence[Transition], view: View) -> list[Mark]:
        """Take what has changed in a step, and return what is a symptom since, or is none any more."""
        self._order.see(view)
        self._now += view.advanced
        self._looks += 1
        new = []
        for each in transitions:
            key = (each.condition.name, each.limit.severity.value)
            if each.began:
                where = self._order.place(each.condition, each.limit, view)
                self._begun[key] = found = _Begun(each.condition, each.limit, self._now, self._looks, where)
                new.append(found)
            elif key in self._begun and self._begun[key].active and not each.active:
                self._begun[key].active = False
                self._begun[key].ended = self._now
        new.sort(key=lambda begun: begun.place)  # a symptom takes over the cause of its own cause
        marks = [self._mark(each) for each in new]
        return [*marks, *(self._marked_late() if new and not view.advanced else ()), *self._released()]

    def of_failure(self) -> Mark:
        """Return what explains that the run fails now: a critical non-finite value that holds since lately."""
        found = [
            each
            for each in self._begun.values()
            if each.condition.family is FATAL
            and each.limit.severity is Severity.CRITICAL
            and each.active
            and self._now - each.at <= WAKE
        ]
        first = min(found, key=lambda each: (each.at, each.place), default=None)
        if first is None:
            return Mark(FAILURE, None)
        root = self._begun[first.cause or first.key]
        return Mark(FAILURE, root.key if root.active else None)

    def _marked_late(self) -> list[Mark]:
        """Find what began in this step, and is explained by what only its later data show; with its own symptoms."""
        early = [each for each in self._begun.values() if each.at == self._now and each.look < self._looks]
        marks = [self._mark(each) for each in early if each.cause is None]
        moved = {mark.key: mark.cause for mark in marks if mark.cause is not None}
        for each in early:
            if each.cause in moved:
                each.cause = moved[each.cause]
        return [Mark(each.key, each.cause) for each in early if each.cause in moved.values()]

    def _mark(self, begun: _Begun) -> Mark:
        found = [each for each in self._begun.values() if self._explains(each, begun)]
        first = min(found, key=lambda each: (each.at, each.place), default=None)
        begun.cause = None if first is None else first.cause or first.key
        self._symptoms.pop(begun.key, None)
        if begun.cause is not None:
            self._symptoms[begun.key] = begun
        return Mark(begun.key, begun.cause)

    def _explains(self, cause: _Begun, symptom: _Begun) -> bool:
        if cause is symptom or cause.cause == symptom.key or not self._in_wake(cause):
            return False
        if self._came_through_the_weights(cause, symptom):
            return True
        same = cause.condition.family is symptom.condition.family
        if same and cause.place > symptom.place:
            return False
        return may_explain((cause.condition, cause.limit), (symptom.condition, symptom.limit))

    def _came_through_the_weights(self, cause: _Begun, symptom: _Begun) -> bool:
        """Return True if ``cause`` has ended the weights after its step, and they what begins now."""
        if cause.condition.name not in _END_WEIGHTS or symptom.condition.family is not FATAL:
            return False
        is_weights = symptom.condition.name == _WEIGHTS  # which may be seen before the next step has a number
        before = cause.look < symptom.look if is_weights else cause.at < symptom.at
        holds = cause.active or cause.ended == self._now
        return before and holds and self._now - cause.at <= WAKE and symptom.condition.name not in _OF_REWARDS

    def _in_wake(self, cause: _Begun) -> bool:
        return cause.active or self._now - cause.at <= WAKE

    def _released(self) -> list[Mark]:
        """Find the symptoms that have outlived their causes."""
        over = [
            each
            for each in self._symptoms.values()
            if each.active and each.cause is not None and not self._in_wake(self._begun[each.cause])
        ]
        for each in over:
            each.cause = None
            del self._symptoms[each.key]
        return [Mark(each.key, None) for each in over]
