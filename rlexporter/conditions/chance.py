"""Weighs evidence: how improbable it is that something happens so often in a row by chance alone.

A step with one group of completions is one toss: that all of its rewards are equal happens in healthy runs every other
step. So it is the run's own past that says what is chance. The unit is minus the decimal logarithm of a probability:
5 is one in 100,000.
"""

from __future__ import annotations

from math import log10

UNIT = "orders of magnitude"
SMALLEST = 0.01
"""The smallest probability that a single observation can have."""


class Streak:
    """Counts how often in a row an event happens, and how often it happened before that.

    ``tosses``: the number of independent parts of an observation that must all agree for the event.
    """

    __slots__ = ("_hits", "_tosses", "_trials", "length")

    def __init__(self, tosses: int = 1) -> None:
        self.length = 0
        self._tosses = tosses
        self._hits = 0
        self._trials = 0

    def add(self, happened: bool) -> float:
        """Add an observation; return how improbable the current streak is, given all observations before it."""
        if happened:
            self.length += 1
        else:
            self._trials += self.length + 1
            self._hits += self.length
            self.length = 0
            return 0.0
        # Laplace's rule of succession, where without a past every probability of a single toss is as likely.
        return -self.length * log10((self._hits + 1) / (self._trials + self._tosses + 1))


class Doubt:
    """Adds up evidence from observations in a row that each have a probability of their own."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0.0

    def add(self, happened: bool, probability: float) -> float:
        """Add an observation whose event has this ``probability`` by chance; return how improbable the row is."""
        self._sum = self._sum - log10(min(max(probability, SMALLEST), 1.0)) if happened else 0.0
        return self._sum
