"""Histograms as values."""

from __future__ import annotations

import math

import pytest

from rlexporter.model.histogram import Histogram, Nonfinite

BOUNDS = (-1.0, 0.0, 1.0)


def test_a_bound_belongs_to_its_bucket() -> None:
    """`le` means less than or equal."""
    found = Histogram.empty(BOUNDS)
    for value in (-1.0, -0.5, 0.0, 1.0, math.nextafter(1.0, 2)):
        found = found.including(value)

    assert found.counts == (1, 2, 1, 1)
    assert found.count == 5


def test_both_sums_only_grow() -> None:
    """Positive and negative values are added up apart, as absolute numbers."""
    found = Histogram.empty(BOUNDS).including(-2.5).including(0.5).including(-0.5)

    assert (found.positive_sum, found.negative_sum) == (0.5, 3.0)
    assert (found.minimum, found.maximum) == (-2.5, 0.5)


def test_histograms_add_up() -> None:
    """Adding two histograms is counting both their values."""
    left = Histogram(BOUNDS, (1, 0, 2, 0), 3.0, 1.5, -1.5, 1.0, Nonfinite(nan=1), outside=2)
    right = Histogram(BOUNDS, (0, 1, 0, 4), 9.0, 0.5, -0.5, 3.0, Nonfinite(positive=2), outside=1)

    assert left + right == Histogram(BOUNDS, (1, 1, 2, 4), 12.0, 2.0, -1.5, 3.0, Nonfinite(1, 2, 0), outside=3)
    assert left + Histogram.empty(BOUNDS) == left


def test_histograms_of_different_bounds_do_not_add_up() -> None:
    """Better an error than a wrong count."""
    with pytest.raises(ValueError, match="different bounds"):
        Histogram.empty(BOUNDS) + Histogram.empty((0.0,))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, Nonfinite(nan=1)),
        (math.inf, Nonfinite(positive=1)),
        (-math.inf, Nonfinite(negative=1)),
        (0.0, Nonfinite()),
        (1.8e308, Nonfinite(positive=1)),
        (1.7e308, Nonfinite()),
    ],
)
def test_numbers_that_are_none_are_told_apart(value: float, expected: Nonfinite) -> None:
    """NaN and the two infinities are three things."""
    assert Nonfinite.of(value) == expected
    assert bool(Nonfinite.of(value)) is not math.isfinite(value)
    assert dict(Nonfinite(1, 2, 3).by_kind()) == {"nan": 1, "+inf": 2, "-inf": 3}
