"""`gc_freeze`: what exists when the training begins is left out of garbage collections until it ends."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from rlexporter import Exporter
from rlexporter.model.step import RunFacts


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Begin with nothing frozen, and leave it as it was: `tests.conftest` freezes what the session begins with."""
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()


class Node:
    """An object in a cycle, which only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


def _begun(*, gc_freeze: bool | None) -> Exporter:
    exporter = Exporter(run="test", port=0, gc_freeze=gc_freeze)
    exporter.run.begin(RunFacts(algorithm="ppo"))
    return exporter


@pytest.mark.parametrize("over", [Exporter.end, Exporter.close], ids=["end", "close"])
def test_objects_are_frozen_while_the_training_lasts(over: Callable[[Exporter], None]) -> None:
    """And what became garbage meanwhile is freed after it."""
    node = Node()
    gone = weakref.ref(node)
    exporter = _begun(gc_freeze=True)
    assert gc.get_freeze_count() > 10_000
    del node
    gc.collect()
    assert gone() is not None, "the price that the docs name"

    over(exporter)
    gc.collect()
    assert (gc.get_freeze_count(), gone()) == (0, None)
    exporter.close()


def test_nothing_is_frozen_unless_it_is_asked_for() -> None:
    """The collector is the user's."""
    exporter = _begun(gc_freeze=None)
    assert gc.get_freeze_count() == 0
    exporter.close()


def test_what_the_user_has_frozen_stays_frozen() -> None:
    """Also when the run is over."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    exporter = _begun(gc_freeze=True)
    exporter.end()
    exporter.close()
    assert gc.get_freeze_count() >= 0.9 * frozen > 0
