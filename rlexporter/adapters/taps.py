"""Base of all taps, and what they are made of: wrapped methods, a call's arguments, a caller's local variables.

Taps wrap a method of one object, never of its class, look at what goes through it, and never disturb it. A tap that
fails costs one signal: it is counted, logged once, and `rl_signal_available` says so. The trainer gets the results and
exceptions that it would get without taps.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, MethodType
from typing import Any

from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from rlexporter.model.sink import Sink

_LAYER = "_rlexporter_layer"
_MAX_FRAMES = 60
_NOWHERE = 2**31


class Taps:
    """Taps on one trainer. Between two steps they hold no tensor of the trainer."""

    log_ends_step = False
    """True if this trainer logs a step before it says that the step has ended."""

    def __init__(self, trainer: Any, sink: Sink) -> None:
        self.trainer = trainer
        self.sink = sink
        self.argument = Arguments()

    def install(self) -> None:
        """Put every tap in place."""
        raise NotImplementedError

    def step_end(self) -> None:
        """Hand over what was kept for the end of the step."""

    def train_end(self) -> None:
        """Note that the training is over, however it ended."""

    def during(self, phase: str) -> Callable[..., Any]:
        """Return a wrapper for `tap` that counts the time of the method as time of ``phase``."""

        def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with self.sink.phase(phase):
                return method(*args, **kwargs)

        return around

    def tap(self, owner: Any, name: str, around: Callable[..., Any], *signals: str) -> None:
        """Send calls of ``owner``'s method ``name`` through ``around``; without the method ``signals`` are lost."""
        try:
            self.sink.on_close(wrap(owner, name, around))
        except (AttributeError, TypeError):  # no such method, or an object that takes no attributes
            kind = type(owner).__name__
            for signal in signals:
                reason = f"{kind} has no {name}: another version of TRL than the taps were made for"
                self.sink.signal(signal, reason, error=True)


class NotTapped(Taps):
    """No taps on the samples of a trainer: only its log lines show them, and each signal that is ``unseen`` says so."""

    unseen = tuple(signal for signal in TENSOR_SIGNALS if signal not in ("loss", "grad_norm"))

    def install(self) -> None:
        """Wrap nothing, and mark the signals as lost."""
        for signal in self.unseen:
            self.sink.signal(signal, f"no taps were made for the loop of this version's {type(self.trainer).__name__}")


class NoTaps(NotTapped):
    """No taps at all, for a loop without an adapter."""

    log_ends_step = True
    unseen = TENSOR_SIGNALS


@dataclass(eq=False)
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
    wrapped = weakref.ref(layer)  # what it replaced may be another wrapper, which keeps the owner alive

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is not owned():
            return getattr(type(self), name)(self, *args, **kwargs)
        return around(method, *args, **kwargs)

    wrapper.__name__ = name
    setattr(wrapper, _LAYER, layer)
    setattr(owner, name, MethodType(wrapper, owner))

    def undo() -> None:
        still, of_wrapper = owned(), wrapped()
        if still is None or of_wrapper is None:
            return
        of_wrapper.gone = True
        # Remove undone wrappers from the outside inwards; one inside a wrapper that is still in use has to wait.
        while (outer := getattr(still.__dict__.get(name), _LAYER, None)) is not None and outer.gone:
            if outer.replaced is None:
                delattr(still, name)
            else:
                setattr(still, name, outer.replaced)

    return undo


def unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method inside our wrappers: `inspect` would drop ``self`` once for each wrapper."""
    while hasattr(method, _LAYER):
        method = method.__wrapped__  # type: ignore[attr-defined]
    return method


class Arguments:
    """Finds a call's argument by the name of its parameter, whether it was passed by position or by keyword.

    Each signature is read once; later calls only look into a dictionary.
    """

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


def _versions(method: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield ``method``, then the methods that it overrides: a user's override may be declared with ``*args``."""
    yield method
    owner = getattr(method, "__self__", None)
    for base in type(owner).__mro__ if owner is not None else ():
        function = vars(base).get(getattr(method, "__name__", ""))
        if inspect.isfunction(function):
            yield function.__get__(owner)


def callers() -> Iterator[FrameType]:
    """Yield the frames above the caller's own, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def local(frame: FrameType, name: str) -> Any:
    """Return the value of the local variable ``name`` of ``frame``; None without one."""
    return variables(frame, (name,)).get(name)


def variables(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the local variables ``names`` that ``frame`` has.

    Up to Python 3.12, reading ``f_locals`` leaves a copy of all local variables in the frame. The copy would keep
    tensors and graphs alive until the function returns, so it is cleared.
    """
    variables = frame.f_locals
    chosen = {name: variables[name] for name in names if name in variables}
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()
    return chosen
