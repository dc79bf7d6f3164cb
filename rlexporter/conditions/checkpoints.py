"""Tells which checkpoints are good: older than the beginning of what is critical, on the clock of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlexporter.catalog.causes import FATAL
from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.conditions.view import View
from rlexporter.model.checkpoint import GoodCheckpoints
from rlexporter.model.histogram import Histogram
from rlexporter.model.incident import Key

_KEPT = 64
"""The good checkpoints that are remembered, in case that some are taken back."""


class Checkpoints:
    """Follows the checkpoints of one run.

    A checkpoint is good if it is older than all that is critical. A condition is taken to have begun in the first step
    of the numbers that show it, or that show its cause. A checkpoint is judged with the first verdict on a later step,
    or at the end of the run, since another line may tell more of its own step; and it is taken back where something
    turns out to have begun by then. ``resumed``: the step of the checkpoint that the run continues; what the first
    verdict finds is taken to have come with it. ``horizon``: returns that of `GoodCheckpoints`. Only the thread that
    holds the lock of the store may call a method; any thread may read `good`.
    """

    def __init__(self, resumed: int | None = None, horizon: Callable[[], int] = lambda: 0) -> None:
        self._horizon = horizon
        self._undecided: list[int] = []
        self._late = resumed
        """The first step that the next verdict is also on."""
        self._since: dict[Key, int] = {}
        """The first step of each critical condition that holds, or leaves the weights in doubt."""
        self.good = GoodCheckpoints(() if resumed is None else (resumed,))

    def saved(self, step: int) -> None:
        """Note that a checkpoint of ``step`` was written."""
        self._undecided = [*self._undecided[-_KEPT:], step]

    def late(self, step: int) -> None:
        """Note that the next verdict is also on what was counted in ``step``."""
        self._late = step if self._late is None else min(self._late, step)

    def see(self, critical: Mapping[Key, int], view: View) -> None:
        """Take the verdict on a step.

        ``critical``: the conditions that hold, each with the first step in which it may have begun; ``view``: what the
        verdict was on.
        """
        step = view.step
        first = step if self._late is None else min(step, self._late)
        for key, since in critical.items():
            self._since[key] = min(since, self._since.get(key, first))
        self._decide(step)
        if self._since:
            self._forget(critical, view.counted.get("rl_weight_norm"))
        if self._late is not None and step > self._late:
            self._late = None

    def decide(self) -> None:
        """Judge the newest checkpoints with what is known now."""
        self._decide(max(self._undecided, default=0) + 1)

    def _decide(self, step: int) -> None:
        """Judge the checkpoints before ``step``; take back what something critical may have spoiled."""
        doubtful = min(self._since.values(), default=None)
        new = [saved for saved in self._undecided if saved < step]
        if not new and doubtful == self.good.doubtful:  # nearly every step
            return
        self._undecided = [saved for saved in self._undecided if saved >= step]
        steps = [each for each in (*self.good.steps, *new) if doubtful is None or each < doubtful]
        horizon = self._horizon() if new else self.good.horizon
        self.good = GoodCheckpoints(tuple(steps[-_KEPT:]), doubtful, horizon)

    def _forget(self, critical: Mapping[Key, int], weights: Histogram | None) -> None:
        """Forget what is over; NaN only once the weights have been seen to be numbers: a trainer may hide them."""
        healthy = weights is not None and weights.count > 0 and not weights.nonfinite
        for key in self._since.keys() - critical.keys():
            if healthy or CONDITION_NAMED[key[0]].family is not FATAL:
                del self._since[key]
