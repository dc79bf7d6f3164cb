"""Lookup of a call's argument by the name of its parameter, whether it was passed by position or by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlexporter.adapters.instance import unwrapped


class Arguments:
    """Finds arguments. Each signature is read once; later calls only look into a dictionary."""

    def __init__(self) -> None:
        self._positions: dict[tuple[Callable[..., Any], str], int] = {}

    def __call__(self, method: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the value that a call of ``method`` with ``args`` and ``kwargs`` passes for the parameter ``name``.

        Raises:
            TypeError: the call does not pass it, or ``method`` has no such parameter.
        """
        if name in kwargs:
            return kwargs[name]
        position = self._positions.get((method, name))
        if position is None:
            position = self._positions[method, name] = _position(method, name)
        if position >= len(args):
            raise TypeError(f"{getattr(method, '__name__', method)}() was called without {name}")
        return args[position]


def _position(method: Callable[..., Any], name: str) -> int:
    """Return the position of ``name``; one that no call reaches if it is unknown or keyword-only."""
    for version in _versions(unwrapped(method)):
        parameters = inspect.signature(version).parameters
        if name in parameters and parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY:
            return list(parameters).index(name)
    return _NOWHERE


_NOWHERE = 2**31


def _versions(method: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield ``method``, then the methods that it overrides: a user's override may be declared with ``*args``."""
    yield method
    owner = getattr(method, "__self__", None)
    for each in type(owner).__mro__ if owner is not None else ():
        function = vars(each).get(getattr(method, "__name__", ""))
        if inspect.isfunction(function):
            yield function.__get__(owner)
