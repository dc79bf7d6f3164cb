"""Finding an argument by the name of its parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlexporter.adapters.taps import Arguments, wrap


class Base:
    """Something of a framework."""

    def add(self, first: int, second: int, *, third: int = 0) -> int:
        """Add them."""
        return first + second + third


class Passing(Base):
    """A user's, which names nothing."""

    def add(self, *args: Any, **kwargs: Any) -> int:
        """Hand on."""
        return super().add(*args, **kwargs)


class Renaming(Base):
    """A user's, with names of its own."""

    def add(self, one: int, two: int) -> int:  # type: ignore[override]
        """Hand on."""
        return super().add(one, two)


@pytest.mark.parametrize("kind", [Base, Passing, Renaming])
def test_by_position_or_keyword(kind: type[Base]) -> None:
    """Whichever class names the parameter."""
    find = Arguments()
    add = kind().add

    assert find(add, "second", (1, 2), {}) == 2
    assert find(add, "second", (3, 4), {}) == 4
    assert find(add, "second", (), {"second": 5, "first": 6}) == 5
    assert find(add, "first", (7,), {"second": 8}) == 7


def test_through_a_wrapper_of_ours() -> None:
    """Two exporters on one trainer; and a function that a user has put in the place of the method."""
    seen: list[Any] = []
    find = Arguments()

    def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(find(method, "second", args, kwargs))
        return method(*args, **kwargs)

    owner: Any = Base()
    wrap(owner, "add", around)
    wrap(owner, "add", around)
    assert owner.add(1, 2) == 3
    owner.add = lambda first, second: first * second
    wrap(owner, "add", around)
    assert owner.add(3, 5) == 15

    assert seen == [2, 2, 5]


def test_one_that_was_not_given() -> None:
    """Says so, and so does one that nobody knows."""
    find = Arguments()
    for name in ("third", "second", "fourth"):
        with pytest.raises(TypeError, match=f"add\\(\\) was called without {name}"):
            find(Base().add, name, (1,), {})
