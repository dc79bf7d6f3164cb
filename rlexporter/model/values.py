"""Reads whatever a trainer logs as a number, an array of numbers, None, or something unreadable. Never raises.

numpy and torch are recognized, not imported: a process that logs their values has loaded them already.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Any, TypeGuard


class Unreadable(Enum):
    """The results of `read` that are not numbers."""

    UNDEFINED = "undefined"
    """None: the trainer had nothing to average."""
    IGNORED = "ignored"
    """A string, a table, an object."""


def is_array(value: object) -> TypeGuard[Any]:
    """Return True for a numpy array or a torch tensor: anything with a shape and a number of elements."""
    return hasattr(value, "shape") and (hasattr(value, "numel") or hasattr(value, "size"))


def read(value: object) -> float | Unreadable | Any:
    """Return the number in ``value``, an array if it holds several, else the reason why it cannot be read.

    An array of one value is a number. Lists and tuples of numbers, nested or not, are arrays.
    """
    if value is None:
        return Unreadable.UNDEFINED
    if isinstance(value, (str, bytes, complex)):
        return Unreadable.IGNORED
    try:
        if is_array(value):
            return _read_array(value)
        if isinstance(value, (list, tuple)):
            numbers = list(_flat(value))
            return numbers if len(numbers) > 1 else numbers[0] if numbers else Unreadable.IGNORED
        return _number(value)
    except Exception:  # noqa: BLE001 - a trainer may log anything, and any __float__ may raise anything
        return Unreadable.IGNORED


def _flat(value: object) -> Iterator[float]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, (str, bytes)):
        raise TypeError("a text is no number")
    else:
        yield _number(value)


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond every float
        return inf if value > 0 else -inf


def _read_array(value: Any) -> float | Unreadable | Any:
    count = value.numel() if hasattr(value, "numel") else value.size
    if count == 1:
        return float(value.item())
    numeric = not value.is_complex() if hasattr(value, "is_complex") else value.dtype.kind in "fiub"
    return value if count and numeric else Unreadable.IGNORED
