"""Reading a caller's local variable."""

from __future__ import annotations

import weakref
from typing import Any

from rlexporter.adapters.taps import callers, local


class Large:
    """Stands for a tensor that must not be kept."""


def _found(name: str) -> Any:
    return next((value for frame in callers() if (value := local(frame, name)) is not None), None)


def test_the_nearest_caller() -> None:
    """Of any depth; and None where nobody has such a variable."""
    here = "outer"

    def inner() -> Any:
        return _found("here")

    assert inner() == "outer"
    assert here == "outer"
    assert _found("nobody has this") is None


def test_no_other_variable_is_kept_alive() -> None:
    """The copy of the locals that Python leaves in a frame is emptied."""
    here = "outer"
    large = Large()
    gone = weakref.ref(large)
    found = _found("here")
    del large

    assert gone() is None
    assert found == here
