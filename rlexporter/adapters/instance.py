"""Wrapping one method of one object, and taking the wrapper off again. Classes are never touched."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

_LAYER = "_rlexporter_layer"


@dataclass(slots=True)
class _Layer:
    """One wrapper: what it stands in front of, and whether it was taken back."""

    replaced: Any
    gone: bool = False


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Let ``around(method, *args, **kwargs)`` be called in place of the method; returns what takes that back.

    The wrapper is a method itself: pickle finds the method of the class under its name, and a deep copy of ``owner``
    calls that one too, so that only ``owner`` is watched. What is returned does not keep ``owner`` alive.
    """
    method = getattr(owner, name)
    owned = weakref.ref(owner)
    layer = _Layer(owner.__dict__.get(name))

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is not owned():
            return getattr(type(self), name)(self, *args, **kwargs)
        return around(method, *args, **kwargs)

    wrapper.__name__ = name
    setattr(wrapper, _LAYER, layer)
    setattr(owner, name, MethodType(wrapper, owner))

    def undo() -> None:
        layer.gone = True
        still = owned()
        if still is not None:
            _peel(still, name)

    return undo


def unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that our wrappers are around: `inspect` would take ``self`` off once for each of them."""
    while hasattr(method, _LAYER):
        method = method.__wrapped__  # type: ignore[attr-defined]
    return method


def _peel(owner: Any, name: str) -> None:
    """Take off those wrappers from the outside that are taken back; one that has another around it waits for that."""
    while (layer := getattr(owner.__dict__.get(name), _LAYER, None)) is not None and layer.gone:
        if layer.replaced is None:
            delattr(owner, name)
        else:
            setattr(owner, name, layer.replaced)
