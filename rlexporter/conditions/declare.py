"""Declares derived signals: each is one decorated function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlexporter.conditions.memory import Memory
from rlexporter.conditions.view import View
from rlexporter.model.condition import Read, Signal, Source

Derive = Callable[[View, Memory], "float | None"]
"""A function that computes a number from a step and from the past of other signals; None if the step has none."""


class Declared:
    """Collects the derived signals of one module, in their order there."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.functions: dict[str, Derive] = {}

    def signal(
        self, name: str, *, unit: str = "", of: str = "", after: tuple[str, ...] = ()
    ) -> Callable[[Derive], Derive]:
        """Declare the decorated function as the signal ``name``, in ``unit``.

        ``of``: its main input, whose variant and series it shares. ``after``: further signals that it reads. All of
        them must be declared before it: `ordered` checks that.
        """

        def declare(function: Derive) -> Derive:
            self.signals.append(Signal(name, unit, (Source(name, Read.DERIVED),), of, after))
            self.functions[name] = function
            return function

        return declare

    def source(self, function: Derive) -> Derive:
        """Declare ``function`` as the `Read.DERIVED` source of its name, not as a signal of its own."""
        self.functions[function.__name__] = function
        return function


def ordered(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return the ``signals`` in the order of evaluation, which is their own.

    Raises:
        ValueError: a name is declared twice, or a signal before one that it is computed from.
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
