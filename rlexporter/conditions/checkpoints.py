"""Tells which checkpoint is the newest good one: written before anything critical began, on the clock of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from rlexporter.conditions.view import View
from rlexporter.model.condition import Family, Severity
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Key, Transition

_KEPT = 8
"""The good checkpoints that are remembered, in case that one is taken back."""


class Checkpoints:
    """Follows the checkpoints of one run.

    A checkpoint is good if no critical condition held that had begun in its step or before. That is decided at the
    first verdict on a later step, or at the end of the run, as another line may tell more of its own step; and taken
    back where counts from a GPU come later still. ``resumed``: the step of the checkpoint that the run continues; what
    the first verdict finds is taken to have come with it. Only the thread that holds the lock of the store may call a
    method.
    """

    def __init__(self, resumed: int | None = None) -> None:
        self._good = deque([] if resumed is None else [resumed], maxlen=_KEPT)
        self._undecided: int | None = None
        self._late = resumed
        """The first step that the next verdict is also on."""
        self._since: dict[Key, int] = {}
        """The step from which each critical condition holds, or leaves the weights in doubt."""
        self._doubtful: set[Key] = set()
        """The non-finite conditions that are over, while nobody has seen if the weights are still numbers."""

    @property
    def good(self) -> int | None:
        """Return the step of the newest good checkpoint; None while there is none."""
        return self._good[-1] if self._good else None

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""
        self._undecided = step

    def late(self, step: int) -> None:
        """Note that the next verdict is also on what was counted in ``step``."""
        self._late = step if self._late is None else min(self._late, step)

    def see(self, transitions: Sequence[Transition], view: View) -> None:
        """Take the verdict on a step, and what it was on."""
        step = view.step
        first = step if self._late is None else min(self._late, step)
        over: dict[Key, bool] = {}
        for transition in transitions:
            if transition.limit.severity is not Severity.CRITICAL:
                continue
            key = transition.key
            if transition.active:
                self._begin(self._since.setdefault(key, first))
                self._doubtful.discard(key)
                over.pop(key, None)  # a signal that moves to another source may end and begin in one step
            elif key in self._since:
                over[key] = transition.condition.family is Family.NONFINITE
        if self._undecided is not None and step > self._undecided:
            self.decide()
        self._end(over, view.counted.get("rl_weight_norm"))
        if self._late is not None and step > self._late:
            self._late = None

    def decide(self) -> None:
        """Decide if the newest checkpoint is good, with what is known now."""
        step, self._undecided = self._undecided, None
        if step is not None and all(step < since for since in self._since.values()):
            self._good.append(step)

    def _begin(self, since: int) -> None:
        """Take back what was thought to be good, as something critical holds ``since`` that step."""
        while self._good and self._good[-1] >= since:
            self._good.pop()

    def _end(self, over: Mapping[Key, bool], weights: Histogram | None) -> None:
        """Forget conditions that are over; those on NaN only once the weights have been seen to be numbers since."""
        for key, nonfinite in over.items():
            if nonfinite:
                self._doubtful.add(key)
            else:
                del self._since[key]
        if weights is not None and weights.count and not weights.nonfinite:
            for key in self._doubtful:
                del self._since[key]
            self._doubtful.clear()
