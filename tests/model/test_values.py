"""What a trainer can log."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from rlexporter.model.values import Unreadable, is_array, read


class _Hostile:
    """Raises whatever is asked of it."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        (1.0, [1, True, np.bool_(True)]),
        (0.5, [0.5, Decimal("0.5"), Fraction(1, 2), np.float32(0.5), torch.tensor(0.5, dtype=torch.bfloat16)]),
        (
            7.0,
            [np.int64(7), np.array(7.0), np.array([7.0]), torch.tensor([[7]]), torch.tensor(7.0, requires_grad=True)],
        ),
        (math.inf, [math.inf, 10**400]),
        (-math.inf, [-math.inf, -(10**400)]),
    ],
)
def test_numbers(expected: float, values: list[object]) -> None:
    """Everything that is one number is read as one."""
    assert [read(value) for value in values] == [expected] * len(values)


@pytest.mark.parametrize("value", [math.nan, np.float16("nan"), torch.tensor(math.nan)], ids=repr)
def test_nan_stays_nan(value: object) -> None:
    """It is data."""
    assert repr(read(value)) == "nan"


def test_none_is_undefined() -> None:
    """The trainer had nothing to average: not the same as a string."""
    assert read(None) is Unreadable.UNDEFINED


@pytest.mark.parametrize(
    "value",
    [
        *("text", "1.5", b"1", 1j, {}, {"mean": 1}, object(), [], (), ["a"], [None, 1], ["1"], [[]], _Hostile()),
        *(np.array([]), np.array(["a", "b"]), np.array([1j, 2j])),
        *(torch.tensor([]), torch.tensor([1j, 2]), torch.empty(1, device="meta")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_ignored(value: object) -> None:
    """Strings, tables and objects, and objects that fight back."""
    assert read(value) is Unreadable.IGNORED


@pytest.mark.parametrize(
    "value", [np.arange(3.0), torch.arange(3), [1, 2.0], (1, 2), [[1], (2,)], [10**400, -1]], ids=repr
)
def test_several_numbers_stay_together(value: object) -> None:
    """Arrays and lists of numbers are handed on for counting."""
    found = read(value)

    assert is_array(found) or isinstance(found, list)
    assert len(found) > 1
