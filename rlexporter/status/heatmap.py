"""A histogram over the steps in bounded memory: columns of a heat map, each of as many steps as the others."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from rlexporter.model.histogram import Histogram

MOST_COLUMNS = 96
"""The columns of a heat map. When there are more, each takes the steps of two."""


class Column(NamedTuple):
    """The values that were counted from ``step`` on, by bucket."""

    step: int
    counts: Sequence[int]


class HeatMap:
    """The columns of one histogram. Column n has the values of the steps from n times ``every`` on."""

    __slots__ = ("_columns", "bounds", "every", "largest", "last_step", "smallest")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        """The upper bounds of the buckets, without the infinite one."""
        self.smallest, self.largest = inf, -inf
        """The smallest and the largest value of all."""
        self.every = 1
        """The steps of a column."""
        self.last_step = -1
        """The newest step that anything was added for."""
        self._columns: dict[int, array[int]] = {}

    def add(self, step: int, counted: Histogram) -> None:
        """Add what was counted up to ``step``, which is not before the last one."""
        self.last_step = step
        self.smallest, self.largest = min(self.smallest, counted.minimum), max(self.largest, counted.maximum)
        self._put(step // self.every, counted.counts)
        while len(self._columns) > MOST_COLUMNS:
            columns, self._columns = self._columns, {}
            self.every *= 2
            for place, counts in columns.items():
                self._put(place // 2, counts)

    def copy(self) -> HeatMap:
        """Return a copy; the counts are shared, since nothing changes them."""
        made = HeatMap(self.bounds)
        made.every, made.last_step, made._columns = self.every, self.last_step, dict(self._columns)
        made.smallest, made.largest = self.smallest, self.largest
        return made

    def columns(self) -> list[Column]:
        """Return the columns that hold something, in the order of their steps."""
        return [Column(place * self.every, counts) for place, counts in self._columns.items()]

    def _put(self, place: int, counts: Sequence[int]) -> None:
        before = self._columns.get(place)
        self._columns[place] = array("Q", counts if before is None else map(operator.add, before, counts))
