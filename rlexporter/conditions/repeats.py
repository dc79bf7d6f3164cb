"""Tells numbers that repeat those of the line before: a log with a line a conversation, or a line a PPO epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rlexporter.conditions.view import LineNumbers

_TOGETHER = 3
"""The numbers that must all be what they were in the line before, for it to be the same observation again."""
_IN_A_ROW = 64
"""The lines in a row that may repeat one. After that a run that stands still is what is observed."""
_OF_UPDATES = (
    *("rl_value_loss", "rl_policy_loss", "rl_total_loss", "rl_loss", "rl_grad_norm", "rl_policy_approxkl"),
    *("rl_entropy_per_token", "rl_kl_per_token", "rl_kl_per_sequence"),
)
"""The numbers that are nearly the same in several updates on one batch."""
_WINDOW = 128
_EVERY = 64
"""The lines after which batches are looked for anew."""
_PERIODS = range(2, 9)
_FEWEST = 5
"""The batches from which on they can be told."""
_SHARE = 0.7
"""The share of batches that must begin with a change larger than all around it, in two numbers: by chance a third."""
_LASTING = 0.5
"""The share, in one number, from which on they still do."""


class Repeats:
    """Drops from the lines of one log what is no new observation. It remembers 128 lines."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._varied: set[str] = set()
        self._in_a_row = 0
        self._lines = 0
        """The number of lines of a trainer with a critic: PPO alone has several epochs, one a line."""
        self._window: deque[Mapping[str, float]] = deque(maxlen=_WINDOW)
        self._batch: tuple[int, int, frozenset[str]] = (1, 0, frozenset())
        """The lines of a batch, the place of its first, and the numbers that repeat in the others."""

    def new(self, line: LineNumbers) -> LineNumbers:
        """Return ``line`` without the numbers that repeat the line before."""
        numbers, before = line.numbers, self._before
        self._before = numbers
        same = [name for name, value in numbers.items() if before.get(name) == value]
        varied = self._varied
        if not numbers.keys() <= varied:  # after a few lines hardly any number has never changed
            varied.update(
                [name for name in numbers.keys() - varied if before.get(name, numbers[name]) != numbers[name]]
            )
        # Whole numbers, such as a share of 0, are often the same by chance; others are, one at a time.
        telling = len([name for name in same if name in varied and not numbers[name].is_integer()])
        repeated = telling >= _TOGETHER and 2 * telling >= len(numbers.keys() & varied)
        self._in_a_row = self._in_a_row + 1 if repeated else 0
        dropped = {*same} if 0 < self._in_a_row <= _IN_A_ROW else {*self._of_batch(numbers)}
        if not dropped:
            return line
        kept = {name: value for name, value in numbers.items() if name not in dropped}
        return LineNumbers(kept, line.functions)

    def _of_batch(self, numbers: Mapping[str, float]) -> frozenset[str]:
        """Return what of ``numbers`` the first update on this batch has shown."""
        if "rl_value_loss" not in numbers:
            return frozenset()
        updates = {name: numbers[name] for name in _OF_UPDATES if name in numbers}
        self._window.append(updates)
        self._lines += 1
        if self._lines % _EVERY == 0:
            self._batch = self._told()
        size, first, names = self._batch
        return frozenset() if self._lines % size == first else names

    def _told(self) -> tuple[int, int, frozenset[str]]:
        """Return how the lines of the window make up batches; as before where that still is so, none if they do not."""
        begun = self._lines - len(self._window) + 1
        changes = {
            name: [abs(after.get(name, 0.0) - before.get(name, 0.0)) for before, after in pairwise(self._window)]
            for name in self._window[-1]
        }

        def begin(size: int, first: int, share: float) -> frozenset[str]:
            starts = [place for place in range(len(self._window) - 1) if (begun + place + 1) % size == first]
            return frozenset(name for name, change in changes.items() if _begins(change, starts, size) >= share)

        if self._batch[2] and begin(*self._batch[:2], _LASTING) & self._batch[2]:
            return self._batch
        for size in _PERIODS:
            for first in range(size):
                names = begin(size, first, _SHARE)
                if len(names) > 1:
                    return size, first, names
        return 1, 0, frozenset()


def _begins(changes: list[float], starts: Sequence[int], size: int) -> float:
    """Return the share of ``starts`` at which the change is larger than all others less than ``size`` lines away."""
    whole = [place for place in starts if place >= size - 1 and place + size <= len(changes)]
    around = [
        (changes[place - size + 1 : place] + changes[place + 1 : place + size], changes[place]) for place in whole
    ]
    return sum(change > max(others) for others, change in around) / len(whole) if len(whole) >= _FEWEST else 0.0
