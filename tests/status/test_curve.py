"""Thinned curves: bounded, even, and without a loss of what matters."""

from __future__ import annotations

import math
import random

import pytest

from rlexporter.status.curve import Curve, Point, thinned

MOST = 200


def _curve(points: list[Point], most: int = MOST, share: float = 1.0) -> list[Point]:
    made = Curve(share)
    for step, value in points:
        made.add(step, value, most)
    return made.points()


def _noise(count: int) -> list[Point]:
    chance = random.Random(3)
    return [(float(step), chance.gauss(0.0, 1.0)) for step in range(1, count + 1)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 100, MOST])
def test_few_points_are_all_there(count: int) -> None:
    """Every one, in order."""
    points = _noise(count)
    assert _curve(points) == points
    assert thinned(points, max(4, count)) == points


@pytest.mark.parametrize("count", [MOST + 10, 1000, 12345, 100_000])
def test_many_points_keep_the_first_the_last_and_the_extremes(count: int) -> None:
    """However many there were, in bounded memory, in order, and none that was not there."""
    points = _noise(count)
    points[count // 3] = (points[count // 3][0], 99.0)
    points[count // 2] = (points[count // 2][0], -99.0)
    kept = _curve(points)

    assert MOST / 4 <= len(kept) <= MOST + 4
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {points[count // 3], points[count // 2]} <= set(kept)
    assert set(kept) <= set(points)
    steps = [step for step, _ in kept]
    assert steps == sorted(set(steps))


def test_a_long_run_is_as_fine_at_its_beginning_as_at_its_end() -> None:
    """Thinning the old points again and again would leave nothing of them."""
    kept = _curve(_noise(100_000))
    parts = [sum(start < step <= start + 20_000 for step, _ in kept) for start in range(0, 100_000, 20_000)]
    assert min(parts) >= max(parts) / 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_kept(value: float) -> None:
    """One in 50,000 steps, beside a large one in the same part."""
    points = _noise(50_000)
    points[20_000] = (20_001.0, value)
    points[20_001] = (20_002.0, 99.0 if value != -math.inf else -99.0)
    for kept in (_curve(points), thinned(points, 50)):
        assert [repr(value) for step, value in kept if step == 20_001.0] == [repr(value)]


def test_a_curve_with_less_room_shrinks() -> None:
    """When more curves come, each has less."""
    made = Curve()
    for step, value in _noise(5000):
        made.add(step, value, MOST)
    for step in range(5001, 5200):
        made.add(float(step), 0.0, 16)
    assert len(made.points()) <= 20
    assert made.last_step == 5199.0


@pytest.mark.parametrize("most", [4, 5, 50, 499])
def test_an_answer_has_as_many_points_as_were_asked_for(most: int) -> None:
    """At most."""
    points = _noise(5000)
    found = thinned(points, most)
    assert most / 2 < len(found) <= most
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert min(points, key=lambda point: point[1]) in found
