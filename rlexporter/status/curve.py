"""A series over the steps in bounded memory: the curve of a number, and the heat map of a histogram."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from copy import copy
from math import inf, nextafter

from rlexporter.model.histogram import Histogram

_MOST_COLUMNS = 96
"""The columns of a heat map. When there are more, each takes the steps of two."""

Point = tuple[float, float]
"""A step and a value."""

_NEXT_TO_INFINITY = nextafter(inf, 0.0)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most ``most`` (4 or more) of ``points``: the first, the last, and the extremes of each part between."""
    if len(points) <= most:
        return list(points)
    between = points[1:-1]
    size = -(-len(between) // ((most - 2) // 2))
    parts = (between[start : start + size] for start in range(0, len(between), size))
    return [points[0], *(point for part in parts for point in _extremes(part)), points[-1]]


class Curve:
    """The points of one series, in the order of its steps: the first, the last, and the extremes between.

    It keeps the lowest and the highest point of each part. When there are too many, it merges pairs of parts: a part is
    twice as long from then on, at the beginning of a run as at its end. ``share``: the part of the room that this curve
    takes, so that not all curves are thinned at the same moment.
    """

    __slots__ = ("_first", "_kept", "_last", "_open", "_share", "_size", "_steps", "_values")

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._first: Point | None = None
        self._last: Point | None = None
        self._steps = array("d")
        self._values = array("d")
        self._size = 2
        """The points of a part, of which two are kept."""
        self._open: list[Point] = []
        """The extremes of the part that is not full yet."""
        self._kept = 0
        """The points that these stand for."""

    @property
    def last_step(self) -> float:
        """Return the step of the newest point; minus infinity if there is none."""
        return self._last[0] if self._last else float("-inf")

    def add(self, step: float, value: float, most: int) -> None:
        """Add a point after the last one, and keep at most ``most`` (8 or more) between the first and the last."""
        point = self._last = (step, value)
        if self._first is None:
            self._first = point
            return
        self._open = _extremes([*self._open, point])
        self._kept += 1
        if self._kept >= self._size:
            self._close()
            while len(self._steps) > most * self._share:
                self._halve()

    def points(self) -> list[Point]:
        if self._first is None or self._last is None:
            return []
        points = [self._first, *zip(self._steps, self._values, strict=True), *self._open]
        return points if points[-1][0] == self._last[0] else [*points, self._last]

    def _close(self) -> None:
        for step, value in self._open:
            self._steps.append(step)
            self._values.append(value)
        self._open, self._kept = [], 0

    def _halve(self) -> None:
        """Merge every two parts into one; an odd last part is open again."""
        points = list(zip(self._steps, self._values, strict=True))
        pairs, alone = (points, []) if len(points) % 4 == 0 else (points[:-2], points[-2:])
        kept = [point for start in range(0, len(pairs), 4) for point in _extremes(pairs[start : start + 4])]
        self._steps = array("d", [step for step, _ in kept])
        self._values = array("d", [value for _, value in kept])
        self._open, self._kept = alone, self._size if alone else 0
        self._size *= 2


def _extremes(points: Sequence[Point]) -> list[Point]:
    """Return the lowest and the highest of ``points``, in their order; of equal ones the first and the last.

    NaN counts as the highest, so that it is never lost.
    """
    if len(points) < 3:
        return list(points)
    low = high = 0
    lowest = highest = _height(points[0][1])
    for place in range(1, len(points)):
        height = _height(points[place][1])
        if height < lowest:
            low, lowest = place, height
        if height >= highest:
            high, highest = place, height
    return [points[low], points[high]] if low < high else [points[high], points[low]]


def _height(value: float) -> float:
    if value != value:
        return inf
    return value if value < inf else _NEXT_TO_INFINITY


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
        while len(self._columns) > _MOST_COLUMNS:
            columns, self._columns = self._columns, {}
            self.every *= 2
            for place, counts in columns.items():
                self._put(place // 2, counts)

    def copy(self) -> HeatMap:
        """Return a copy; the counts are shared, since nothing changes them."""
        made = copy(self)
        made._columns = dict(self._columns)
        return made

    def columns(self) -> dict[int, Sequence[int]]:
        """Return what was counted in each bucket, by the first step of each column that holds something."""
        return {place * self.every: counts for place, counts in self._columns.items()}

    def _put(self, place: int, counts: Sequence[int]) -> None:
        before = self._columns.get(place)
        self._columns[place] = array("Q", counts if before is None else map(operator.add, before, counts))
