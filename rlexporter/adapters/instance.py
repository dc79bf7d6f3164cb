"""Wrappers around one method of one object, which can be removed again. Classes are never touched."""

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
    """A wrapper's state: the attribute that it replaced, and whether it was undone."""

    replaced: Any
    gone: bool = False


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Call ``around(method, *args, **kwargs)`` in place of the method ``name``; return a function that undoes it.

    The wrapper is a bound method: pickle finds the class's method under its name, and so does a deep copy of
    ``owner``, so that only ``owner`` is watched. The returned function does not keep ``owner`` alive.
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
    """Return the method inside our wrappers: `inspect` would drop ``self`` once for each wrapper."""
    while hasattr(method, _LAYER):
        method = method.__wrapped__  # type: ignore[attr-defined]
    return method


def _peel(owner: Any, name: str) -> None:
    """Remove undone wrappers from the outside inwards; one inside a wrapper that is still in use has to wait."""
    while (layer := getattr(owner.__dict__.get(name), _LAYER, None)) is not None and layer.gone:
        if layer.replaced is None:
            delattr(owner, name)
        else:
            setattr(owner, name, layer.replaced)
