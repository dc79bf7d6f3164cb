"""What the keys of a log hold from step to step: levels, shares and scores, with the noise of a real run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, sqrt
from random import Random

STEPS = 160
"""The last step of a log; what is said to end somewhere is there in this step."""
_KEPT = 0.95
"""How much of what wanders is left after a step."""
_FREEDOM = 4
"""The degrees of freedom of the t distribution, whose tails are those of gradient norms and mismatches."""
_FARTHEST = 6.0


class Noise:
    """The noise of one key. ``seed``: the same each time."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self._wander = self._random.gauss(0.0, 1.0)

    def fast(self) -> float:
        """A draw of this step alone, of spread 1 and with heavy tails."""
        drawn = self._random.gauss(0.0, 1.0) / sqrt(self._random.gammavariate(_FREEDOM / 2, 2 / _FREEDOM))
        return max(-_FARTHEST, min(_FARTHEST, drawn))

    def slow(self) -> float:
        """What wanders over tens of steps, of spread 1."""
        self._wander = _KEPT * self._wander + sqrt(1 - _KEPT**2) * self._random.gauss(0.0, 1.0)
        return self._wander

    def share(self, probability: float, trials: int) -> float:
        """The share of ``trials`` that succeed."""
        return sum(self._random.random() < probability for _ in range(trials)) / trials


Curve = Callable[[int, Noise], float]
"""The value of a key in a step."""


@dataclass(frozen=True)
class Every:
    """A curve that is logged every so many steps, and before the first: an evaluation."""

    interval: int
    curve: Curve

    def __call__(self, step: int, noise: Noise) -> float:
        return self.curve(step, noise)


def still(value: float) -> Curve:
    """Always the same."""
    return lambda step, noise: value


def between(first: float, last: float) -> Callable[[int], float]:
    """By equal factors from one number to another."""
    return lambda step: first * (last / first) ** (step / STEPS)


def level(
    first: float,
    spread: float = 0.1,
    *,
    to: float | None = None,
    wander: float = 0.0,
    most: float = inf,
) -> Curve:
    """A positive number that goes from ``first`` ``to`` another.

    ``spread`` and ``wander``: of its logarithm, from step to step and over tens of steps; ``most``: its upper bound.
    """
    course = between(first, first if to is None else to)

    def curve(step: int, noise: Noise) -> float:
        factor = spread * noise.fast() + wander * noise.slow()
        return min(most, course(step) * exp(factor))

    return curve


def around(value: float, spread: float) -> Curve:
    """A number of any sign, with noise that is added."""
    return lambda step, noise: value + spread * noise.fast()


def one_plus(curve: Curve) -> Curve:
    """What lies above 1."""
    return lambda step, noise: 1.0 + curve(step, noise)


def one_less(curve: Curve) -> Curve:
    """What lies below 1, and not below 0."""
    return lambda step, noise: max(0.0, 1.0 - curve(step, noise))


def minus(curve: Curve) -> Curve:
    """What lies below 0."""
    return lambda step, noise: -curve(step, noise)


def share(first: float, trials: int, *, to: float | None = None) -> Curve:
    """The share of so many independent trials that succeed, evenly from one probability ``to`` another."""
    last = first if to is None else to

    def curve(step: int, noise: Noise) -> float:
        return noise.share(first + (last - first) * step / STEPS, trials)

    return curve


def times(factor: float, curve: Curve) -> Curve:
    """A count out of a share."""
    return lambda step, noise: factor * curve(step, noise)
