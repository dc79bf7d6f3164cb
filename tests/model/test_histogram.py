"""Histograms as values."""

from __future__ import annotations

import math

import pytest

from rlexporter.model.histogram import Histogram, Nonfinite

BOUNDS = (-1.0, 0.0, 1.0)


def test_a_value_more() -> None:
    """A bound belongs to its bucket; positive and negative values are added up apart, so that both sums only grow."""
    found = Histogram.empty(BOUNDS)
    for value in (-1.0, -0.5, 0.0, 1.0, math.nextafter(1.0, 2)):
        found = found.including(value)

    assert (found.counts, found.count) == ((1, 2, 1, 1), 5)
    assert (found.positive_sum, found.negative_sum) == pytest.approx((2.0, 1.5))
    assert (found.minimum, found.maximum) == (-1.0, math.nextafter(1.0, 2))


def test_numbers_that_are_none_are_told_apart() -> None:
    """NaN and the two infinities are three things."""
    bad = [Nonfinite(nan=1), Nonfinite(positive=1), Nonfinite(negative=1), Nonfinite()]
    assert [Nonfinite.of(value) for value in (math.nan, math.inf, -math.inf, 1.7e308)] == bad
    assert list(map(bool, bad)) == [True, True, True, False]
    assert dict(Nonfinite(1, 2, 3).by_kind()) == {"nan": 1, "+inf": 2, "-inf": 3}


def test_histograms_add_up() -> None:
    """Adding two histograms is counting both their values; of different bounds, better an error than a wrong count."""
    left = Histogram(BOUNDS, (1, 0, 2, 0), 3.0, 1.5, -1.5, 1.0, Nonfinite(nan=1), outside=2)
    right = Histogram(BOUNDS, (0, 1, 0, 4), 9.0, 0.5, -0.5, 3.0, Nonfinite(positive=2), outside=1)

    assert left + right == Histogram(BOUNDS, (1, 1, 2, 4), 12.0, 2.0, -1.5, 3.0, Nonfinite(1, 2, 0), outside=3)
    assert left + Histogram.empty(BOUNDS) == left
    with pytest.raises(ValueError, match="different bounds"):
        Histogram.empty(BOUNDS) + Histogram.empty((0.0,))
