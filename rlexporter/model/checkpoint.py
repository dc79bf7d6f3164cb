"""Checkpoints of a run: which are good, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class GoodCheckpoints(NamedTuple):
    """What is known of the checkpoints of a run."""

    steps: tuple[int, ...] = ()
    """Those that are good as far as anybody knows, the newest last."""
    doubtful: int | None = None
    """The first step whose checkpoint something critical may have spoiled; None while nothing critical holds."""
    horizon: int = 0
    """The steps after which a checkpoint has proven itself: what had begun before it would be certain by then."""


class Folders(NamedTuple):
    """Where the checkpoints of a run are, by the names of folders in that of the run."""

    by_step: Mapping[int, str] | None = None
    """The checkpoints that exist, also those of attempts before; None where nobody looks."""
    earlier: str = ""
    """The newest one that an attempt before has kept as good; empty if there is none."""

    def newest(self, good: GoodCheckpoints) -> tuple[int | None, str]:
        """Return the step and the folder of the newest good checkpoint that exists.

        None if there is none; an empty folder where nobody looks.
        """
        by_step = self.by_step
        if by_step is None:
            return (good.steps[-1] if good.steps else None), ""
        return next(((step, by_step[step]) for step in reversed(good.steps) if step in by_step), (None, ""))
