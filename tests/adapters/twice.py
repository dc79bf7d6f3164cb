"""A training with the exporter and the same one without it, which have to be alike bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from tests import tiny
from tests.adapters.kept import SavedState, assert_counted
from tests.conftest import fetch
from tests.served import errors, nonfinite

_TIMED = ("runtime", "per_second", "step_time")


class Lines(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Keeps what every other callback sees."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))

    def untimed(self) -> list[dict[str, Any]]:
        """Return the lines without what another training of the same kind logs differently: times."""
        return [{k: v for k, v in line.items() if not any(word in k for word in _TIMED)} for line in self.logs]


Outcome = tuple[list[dict[str, Any]], dict[str, Any], Any]
"""Log lines without times, weights, random states."""


def trained(
    make: Callable[[Lines], Any], attached: bool, served: Callable[[Exporter, str], None] = lambda *_: None
) -> Outcome:
    """What a trainer leaves behind; ``make``: returns it, from the same seeds each time, with this callback.

    ``served``: is called with the exporter and a scrape after the training.
    """
    random.seed(0)
    np.random.seed(0)
    lines = Lines()
    trainer = make(lines)
    exporter = rlexporter.attach(trainer) if attached else None
    trainer.train()
    if exporter is not None:
        served(exporter, fetch(f"{exporter.url}/metrics")[1])
        exporter.close()
    return lines.untimed(), trainer.model.state_dict(), random_states()


def random_states() -> Any:
    """The states of Python's, numpy's and torch's random numbers."""
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]


def assert_same(one: Outcome, other: Outcome) -> None:
    """Bit for bit."""
    assert repr(one[0]) == repr(other[0])  # NaN is as NaN
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(weight, other[1][key]) for key, weight in one[1].items())
    assert one[2] == other[2]


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
        losses, size = trainers[0].losses, trainers[0].args.gradient_accumulation_steps
        kept = trainers[0].kept
        kept.add("rl_loss_dist", [sum(losses[i : i + size]) for i in range(0, len(losses), size)])
        assert_counted(text, kept, "rl_grad_norm_dist")
        assert nonfinite(exporter) == {}
        assert errors(exporter) == 0
        exporters.append(exporter)

    watched = trained(counting, True, check)
    if not tiny.ON_GPU:
        assert_same(trained(make, False), watched)
    return trainers[0], exporters[0]
