"""Wrapping a method of one object."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from rlexporter.adapters.taps import wrap


class Base:
    """Something with a method."""

    def add(self, number: int, *, twice: bool = False) -> int:
        """Add it."""
        return number * (2 if twice else 1) + 1


class Owner(Base):
    """A user's class over that of a framework."""


def _plus_ten(method: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    return method(*args, **kwargs) + 10


def test_only_this_object() -> None:
    """Not its class, and no other object of it."""
    owner, other = Owner(), Owner()
    wrap(owner, "add", _plus_ten)

    assert (owner.add(1, twice=True), other.add(1, twice=True)) == (13, 3)
    assert owner.add.__doc__ == "Add it."
    assert "add" not in vars(Owner)


def test_a_later_wrapper_of_somebody_else_stays() -> None:
    """What is not ours is not taken off."""
    owner = Owner()
    undo = wrap(owner, "add", _plus_ten)
    ours = owner.add
    owner.add = lambda number: ours(number) + 100  # type: ignore[method-assign, assignment, misc]
    undo()

    assert owner.add(1) == 112


def test_an_objects_own_method_comes_back() -> None:
    """One that was set on the object, not the class."""
    owner = Owner()
    owner.add = lambda number: number  # type: ignore[method-assign, assignment, misc]
    undo = wrap(owner, "add", _plus_ten)
    assert owner.add(1) == 11
    undo()
    assert owner.add(1) == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda owner: pickle.loads(pickle.dumps(owner))])
def test_copies_are_not_watched(duplicate: Callable[[Owner], Owner]) -> None:
    """They call the method of their class, on themselves."""
    owner = Owner()
    wrap(owner, "add", _plus_ten)
    twin = duplicate(owner)

    assert twin.add(1) == 2
    assert owner.add(1) == 12


def test_wrappers_come_off_in_any_order() -> None:
    """One that has another of ours around it goes with that one; twice is once."""
    owner = Owner()
    first, second, third = (wrap(owner, "add", _plus_ten) for _ in range(3))
    first()
    first()
    third()
    assert owner.add(1) == 22
    second()

    assert vars(owner) == {}
