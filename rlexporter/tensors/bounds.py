"""Bucket bounds in the dtype of a tensor, rounded down so that comparisons in that dtype are exact."""

from __future__ import annotations

import math
from functools import lru_cache

MANTISSA_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_SMALLEST_EXPONENT = {"float64": -1074, "float32": -149, "float16": -24, "bfloat16": -133}
_LARGEST = {
    "float64": math.ldexp(1 - 2.0**-53, 1024),
    "float32": math.ldexp(1 - 2.0**-24, 128),
    "float16": 65504.0,
    "bfloat16": math.ldexp(1 - 2.0**-8, 128),
}


@lru_cache(maxsize=512)
def rounded_down(bounds: tuple[float, ...], dtype: str) -> tuple[float, ...]:
    """Return for each bound the largest number of ``dtype`` that is at most the bound, or minus infinity if none is.

    For every finite x of ``dtype``, x <= bound and x <= rounded_down(bound) are the same.
    """
    return tuple(_floor(bound, dtype) for bound in bounds)


def edges(bounds: tuple[float, ...], dtype: str) -> tuple[float, ...]:
    """Return the upper ends of the classes that values are sorted into, ascending; above the last one is only NaN.

    Minus infinity; outside (negative, where no bound is negative); one for each bound; finite above them; infinity.
    """
    below_zero = -math.ldexp(1.0, _SMALLEST_EXPONENT[dtype])
    outside = -math.inf if not bounds or bounds[0] < 0 else below_zero
    return (-math.inf, outside, *rounded_down(bounds, dtype), _LARGEST[dtype], math.inf)


def _floor(bound: float, dtype: str) -> float:
    limit = _LARGEST[dtype]
    if bound >= limit:
        return limit
    if bound < -limit:
        return -math.inf
    if bound == 0.0:
        return 0.0
    _, exponent = math.frexp(bound)
    unit = max(exponent - MANTISSA_BITS[dtype], _SMALLEST_EXPONENT[dtype])
    return math.ldexp(math.floor(math.ldexp(bound, -unit)), unit)
