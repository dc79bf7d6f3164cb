"""Numbers as JSON takes them."""

from __future__ import annotations

from math import isfinite, isnan

Number = float | int | str | None
"""A number of a JSON document: NaN and infinities are the strings "NaN", "+Inf" and "-Inf"."""


def number(value: float | None) -> Number:
    """Return ``value`` for a JSON document, which has no NaN or infinity; None for None."""
    if value is None or isfinite(value):
        return value
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def whole(value: float | None) -> Number:
    """Return ``value``, which counts something, without a fraction."""
    return int(value) if value is not None and isfinite(value) else number(value)
