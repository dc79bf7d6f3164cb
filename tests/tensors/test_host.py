"""Bucket counts, against numpy on the same values."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlexporter.model.histogram import Nonfinite
from rlexporter.tensors.host import count, mean

pytestmark = pytest.mark.usefixtures("both_ways")

BOUNDS = (-10.0, -1.0, -0.1, 0.0, 0.1, 1.0, 10.0)
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def _by_numpy(values: list[float]) -> list[int]:
    finite = [value for value in values if math.isfinite(value)]
    at_most = [sum(value <= bound for value in finite) for bound in BOUNDS]
    return [later - earlier for earlier, later in pairwise([0, *at_most, len(finite)])]


@settings(deadline=None)
@given(st.lists(st.floats(width=32), max_size=60))
def test_counts_equal_a_plain_count(values: list[float]) -> None:
    """Each finite value in the first bucket whose bound is not below it; the others counted by kind."""
    found = count(torch.tensor(values, dtype=torch.float32), BOUNDS)
    positive = sum(value for value in values if math.isfinite(value) and value > 0)

    assert list(found.counts) == _by_numpy(values)
    assert found.positive_sum == pytest.approx(positive, rel=1e-6)
    assert found.nonfinite == Nonfinite(sum(map(math.isnan, values)), values.count(math.inf), values.count(-math.inf))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_many_values_are_counted_in_parts(dtype: torch.dtype) -> None:
    """As one plain count of all, with a mask, in whichever part they lie."""
    values = (torch.randn(150_001, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    values[70_000:70_003] = torch.tensor([math.nan, math.inf, -math.inf])
    mask = torch.arange(150_001) % 7 > 2
    found = count(values, BOUNDS, mask)
    chosen = values[mask].double().numpy()
    finite = chosen[np.isfinite(chosen)]

    above = [-math.inf, *np.nextafter(BOUNDS, math.inf), math.inf]
    assert list(found.counts) == np.histogram(finite, above)[0].tolist()
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert found.positive_sum - found.negative_sum == pytest.approx(finite.sum())
    assert found.nonfinite == Nonfinite(*(int(mask[70_000 + i]) for i in range(3)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_bound_means_the_real_number(dtype: torch.dtype) -> None:
    """A value is in `le` if it is at most that number, whatever its type can hold: 0.1 rounds up in float32."""
    limit = torch.tensor(0.1, dtype=dtype)
    step = torch.finfo(dtype).eps
    around = torch.stack([limit, limit * (1 - 2 * step), limit * (1 + 2 * step)])
    found = count(around, (0.1,))

    assert found.counts[0] == sum(float(value) <= 0.1 for value in around)


def test_zero_has_no_sign() -> None:
    """-0.0 is at most 0, and a subnormal is not."""
    assert count(torch.tensor([-0.0, 0.0, 5e-324], dtype=torch.float64), (-1.0, 0.0)).counts == (0, 2, 1)


@pytest.mark.parametrize(
    "values",
    [
        torch.arange(12.0).reshape(3, 4).T[::2],
        torch.arange(12.0).reshape(3, 4).requires_grad_(),
        np.arange(12.0).reshape(3, 4)[::-1],
        np.arange(12, dtype=">f4"),
        np.arange(12, dtype=np.float16),
        np.arange(12, dtype=np.longdouble),
        torch.arange(12),
        list(range(12)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_shape_and_layout(values: Any) -> None:
    """Strided, transposed, with a graph, big-endian, integers, lists."""
    plain = [float(value) for value in np.asarray(values.detach() if torch.is_tensor(values) else values).ravel()]

    assert list(count(values, BOUNDS).counts) == _by_numpy(plain)


def test_masked_values_do_not_count() -> None:
    """Of any kind; the mask broadcasts."""
    values = torch.tensor([[0.5, math.nan, -3.0], [math.inf, 20.0, 0.05]])

    assert count(values, BOUNDS, values.new_tensor([[1, 0, 1], [0, 1, 0]])).counts == (0, 1, 0, 0, 0, 1, 0, 1)
    assert count(values, BOUNDS, torch.tensor([[True], [False]])).nonfinite == Nonfinite(nan=1)
    assert count(values, BOUNDS, torch.zeros(2, 3)).count == 0


def test_negative_values_where_there_can_be_none() -> None:
    """TRL pads ratios with -1: not a measurement, and not silently gone."""
    found = count(torch.tensor([-1.0, 0.5, 2.0, -1.0]), (0.0, 1.0))

    assert (found.counts, found.outside, found.positive_sum) == ((0, 1, 1), 2, 2.5)


@pytest.mark.parametrize(
    "values", [np.array([1.0, 2.0]), torch.tensor([[1], [2]]), [1, 2.0], np.arange(1, 3, dtype=">i2")], ids=repr
)
def test_means(values: Any) -> None:
    """Of whatever holds several numbers."""
    assert mean(values) == 1.5


@pytest.mark.parametrize("values", [[1.0, math.nan], torch.tensor([1.0, math.nan]), np.array([np.inf, -np.inf])])
def test_the_mean_of_nan_is_nan(values: Any) -> None:
    """No filter, and no warning of numpy's in the trainer's output."""
    assert math.isnan(mean(values))
