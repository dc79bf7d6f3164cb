"""Wrapping one method of one object, and taking the wrapper off again. Classes are never touched."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

_MARK = "_rlexporter_wrapper"


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Let ``around(method, *args, **kwargs)`` be called in place of the method; returns what takes that back.

    The wrapper is a method itself: pickle finds the method of the class under its name, and a deep copy of ``owner``
    calls that one too, so that only ``owner`` is watched. What is returned does not keep ``owner`` alive.
    """
    method = getattr(owner, name)
    replaced = owner.__dict__.get(name)
    owned = weakref.ref(owner)
    mark = object()

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is not owned():
            return getattr(type(self), name)(self, *args, **kwargs)
        return around(method, *args, **kwargs)

    wrapper.__name__ = name
    setattr(wrapper, _MARK, mark)
    setattr(owner, name, MethodType(wrapper, owner))

    def undo() -> None:
        still = owned()
        if still is None or getattr(still.__dict__.get(name), _MARK, None) is not mark:
            return
        if replaced is None:
            delattr(still, name)
        else:
            setattr(still, name, replaced)

    return undo
