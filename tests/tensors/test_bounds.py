"""Bounds in the type of a tensor, against torch's own numbers of that type."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlexporter.catalog.metrics import CATALOG
from rlexporter.tensors.bounds import edges, rounded_down

pytestmark = pytest.mark.usefixtures("both_ways")

DTYPES = ["float64", "float32", "float16", "bfloat16"]
BITS = {"float64": torch.int64, "float32": torch.int32, "float16": torch.int16, "bfloat16": torch.int16}


def _next(value: float, dtype: str) -> float:
    """The next larger number of this type, by its bits."""
    number = torch.tensor(value, dtype=getattr(torch, dtype))
    if value == 0:
        return float(torch.tensor(1, dtype=BITS[dtype]).view(number.dtype))
    bits = number.view(BITS[dtype])
    return float((bits + (1 if value > 0 else -1)).view(number.dtype))


def _largest(dtype: str) -> float:
    return float(torch.finfo(getattr(torch, dtype)).max)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.0)
@example(-0.0)
@example(0.1)
@example(5e-324)
@example(-5e-324)
@example(1e-45)
@example(65504.0)
@example(-65505.0)
@example(1.7976931348623157e308)
def test_the_largest_number_that_is_not_above(dtype: str, bound: float) -> None:
    """It is a number of the type, it is not above the bound, and the next one is."""
    (found,) = rounded_down((bound,), dtype)

    if found == -math.inf:
        assert bound < -_largest(dtype)
        return
    assert float(torch.tensor(found, dtype=torch.float64).to(getattr(torch, dtype))) == found
    assert found <= bound
    assert found == _largest(dtype) or _next(found, dtype) > bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ends_of_the_classes_are_numbers_of_torch(dtype: str) -> None:
    """Below: minus infinity, and where no bound is negative all that is. Above: the largest number."""
    assert edges((0.5, 1.0), dtype) == (-math.inf, -_next(0.0, dtype), 0.5, 1.0, _largest(dtype), math.inf)
    assert edges((-1.0,), dtype) == (-math.inf, -math.inf, -1.0, _largest(dtype), math.inf)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_around_every_bound(dtype: str) -> None:
    """Comparing in the type is comparing the real numbers: one step either side of each bound of the catalog."""
    for bound in {bound for metric in CATALOG for bound in metric.bounds}:
        (limit,) = rounded_down((bound,), dtype)
        for value in (limit, _next(limit, dtype), -_next(-limit, dtype)):
            if math.isfinite(value):
                assert (value <= limit) == (value <= bound), (bound, value)
