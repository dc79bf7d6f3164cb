"""A curve in bounded memory: thinned evenly over the steps, with its first and last point and its extremes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isnan

Point = tuple[float, float]
"""A step and a value."""


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most ``most`` (4 or more) of ``points``: the first, the last, and the extremes of each part between."""
    if len(points) <= most:
        return list(points)
    between = points[1:-1]
    size = -(-len(between) // ((most - 2) // 2))
    parts = (between[start : start + size] for start in range(0, len(between), size))
    return [points[0], *(point for part in parts for point in _extremes(part)), points[-1]]


class Curve:
    """The points of one series, in the order of its steps.

    Of every so many points the lowest and the highest are kept. When there are too many, pairs of these parts are made
    one, so that a part is twice as long from then on, at the beginning of a run as at its end.
    """

    __slots__ = ("_first", "_kept", "_last", "_open", "_size", "_steps", "_values")

    def __init__(self) -> None:
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
        """Add a point behind the last one, and keep at most ``most`` (8 or more) between the first and the last."""
        self._last = (step, value)
        if self._first is None:
            self._first = self._last
            return
        self._open = _extremes([*self._open, self._last])
        self._kept += 1
        if self._kept >= self._size:
            self._close()
            while len(self._steps) > most:
                self._halve()

    def points(self) -> list[Point]:
        """Return the points."""
        if self._first is None or self._last is None:
            return []
        found = [self._first, *zip(self._steps, self._values, strict=True), *self._open]
        return found if found[-1][0] == self._last[0] else [*found, self._last]

    def _close(self) -> None:
        for step, value in self._open:
            self._steps.append(step)
            self._values.append(value)
        self._open, self._kept = [], 0

    def _halve(self) -> None:
        """Make one part of each two; a last one that is alone is open again."""
        parts = list(_pairs(list(zip(self._steps, self._values, strict=True))))
        alone = parts.pop() if len(parts[-1]) < 4 else []
        kept = [point for part in parts for point in _extremes(part)]
        self._steps = array("d", [step for step, _ in kept])
        self._values = array("d", [value for _, value in kept])
        self._open, self._kept = alone, self._size if alone else 0
        self._size *= 2


def _pairs(points: list[Point]) -> Iterator[list[Point]]:
    return (points[start : start + 4] for start in range(0, len(points), 4))


def _extremes(points: Sequence[Point]) -> list[Point]:
    """Return the lowest and the highest of ``points``, in their order; of equal ones the first and the last."""
    if len(points) <= 2:
        return list(points)
    low = min(points, key=_height)
    high = max(reversed(points), key=_height)
    return [low, high] if low[0] < high[0] else [high, low]


def _height(point: Point) -> tuple[bool, float]:
    """Return what orders points: NaN is the highest, since it must not be lost."""
    value = point[1]
    return (True, 0.0) if isnan(value) else (False, value)
