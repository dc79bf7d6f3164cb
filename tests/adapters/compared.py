"""A training that is counted once more by hand while an exporter watches it, and the same one without an exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlexporter import Exporter
from tests import tiny
from tests.adapters import twice
from tests.adapters.kept import SavedState, assert_counted
from tests.adapters.lines import Lines
from tests.served import errors, nonfinite


def assert_counted_and_same(make: Callable[[Lines], Any], keeping: type[Any]) -> tuple[Any, Exporter]:
    """Every histogram equals an independent count, bucket for bucket; nothing is not finite, and nothing of ours fails.

    And losses, weights and random states are, bit for bit, those of the same training without an exporter; not on a
    GPU, which adds in any order.

    ``make``: returns a trainer, from the same seeds each time, with this callback; ``keeping``: the class that it gets
    to count by hand. Returned are that trainer, and its exporter, closed.
    """
    trainers: list[Any] = []
    exporters: list[Exporter] = []

    def counting(lines: Lines) -> Any:
        trainer = make(lines)
        trainer.__class__ = keeping
        trainer.kept, trainer.losses = SavedState(), []
        trainers.append(trainer)
        return trainer

    def check(exporter: Exporter, text: str) -> None:
        assert_counted(text, trainers[0])
        assert nonfinite(exporter) == {}
        assert errors(exporter) == 0
        exporters.append(exporter)

    watched = twice.trained(counting, True, check)
    if not tiny.ON_GPU:
        twice.assert_same(twice.trained(make, False), watched)
    return trainers[0], exporters[0]
