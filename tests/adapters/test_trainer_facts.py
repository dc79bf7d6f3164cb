"""Facts that an adapter reads from a trainer's settings."""

from __future__ import annotations

import pytest
import torch

from rlexporter.adapters.trainer_facts import gpus


@pytest.mark.parametrize(("device", "ranks", "found"), [("cpu", 8, 0), ("cuda", 8, 8), ("cuda:3", 1, 1), ("xpu", 2, 2)])
def test_gpus_are_one_a_rank(device: str, ranks: int, found: int) -> None:
    """Whatever the accelerator; none on a CPU."""
    assert gpus(torch.device(device), ranks) == found


def test_a_device_that_is_not_known_is_not_counted() -> None:
    """Absent, not 0: a run that costs nothing would be wrong."""
    assert gpus(None, 8) is None
