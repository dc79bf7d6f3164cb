"""A training with the exporter and the same one without it, which have to be alike bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import rlexporter
from rlexporter import Exporter
from tests.adapters.lines import Lines
from tests.conftest import fetch

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
