"""Declares derived signals: a decorated function is all there is to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlexporter.conditions.memory import Memory
from rlexporter.conditions.view import View
from rlexporter.model.condition import Read, Signal, Source

Derive = Callable[[View, Memory], "float | None"]
"""Computes a number from a step and from the past of other signals; None where the step says nothing about it."""


class Declared:
    """Collects the derived signals of one module, in the order in which they stand there."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.functions: dict[str, Derive] = {}

    def signal(
        self, name: str, *, unit: str = "", of: str = "", after: tuple[str, ...] = ()
    ) -> Callable[[Derive], Derive]:
        """Declare the decorated function as the signal ``name``, in ``unit``.

        ``of``: the signal that it is computed from, whose variant and series it shares. ``after``: further signals
        that it reads. Both must be evaluated before it: `ordered` checks that.
        """

        def declare(function: Derive) -> Derive:
            self.signals.append(Signal(name, unit, (Source(name, Read.DERIVED),), of, after))
            self.functions[name] = function
            return function

        return declare

    def source(self, function: Derive) -> Derive:
        """Declare a function as a source of the catalogue, `Read.DERIVED` under its name, and not as a signal."""
        self.functions[function.__name__] = function
        return function


def ordered(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return the signals, which are evaluated in this order.

    Raises:
        ValueError: a name stands there twice, or a signal before one that it is computed from.
    """
    known: set[str] = set()
    for signal in signals:
        if signal.name in known:
            raise ValueError(f"the signal {signal.name} is declared twice")
        missing = [name for name in (signal.of, *signal.after) if name and name not in known]
        if missing:
            raise ValueError(f"declare the signal {signal.name} after {' and '.join(missing)}: it is computed from it")
        known.add(signal.name)
    return tuple(signals)
