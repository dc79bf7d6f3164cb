"""Facts read from settings: GPUs, and how many updates in a row a scaler of fp16 may skip in a healthy run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import GradScalerKwargs  # type: ignore[import-untyped]

from rlexporter.adapters.optimizer import halvings
from rlexporter.adapters.trainer_facts import gpus


@pytest.mark.parametrize(
    ("device", "ranks", "found"), [("cpu", 8, 0), ("cuda", 8, 8), ("cuda:3", 1, 1), ("xpu", 2, 2), (None, 8, None)]
)
def test_gpus_are_one_a_rank(device: str | None, ranks: int, found: int | None) -> None:
    """Whatever the accelerator; none on a CPU. What is not known is absent, not 0: no run costs nothing."""
    assert gpus(torch.device(device) if device else None, ranks) == found


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (None, 16),
        (GradScalerKwargs(), 16),
        (GradScalerKwargs(init_scale=2.0**20), 20),
        (GradScalerKwargs(init_scale=1000.0), 10),
        (GradScalerKwargs(backoff_factor=0.25), 8),
    ],
)
def test_halvings_of_the_scaler_of_torch(handler: Any, expected: int) -> None:
    """From 65536 to 1 by halves, or as the script has it."""
    assert halvings(SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=None), scaler_handler=handler)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 17),
        ({"fp16": {"enabled": True, "initial_scale_power": 32}}, 33),
        ({"fp16": {"initial_scale_power": 12, "hysteresis": 4}}, 15),
    ],
)
def test_halvings_of_the_scaler_of_deepspeed(config: dict[str, Any], expected: int) -> None:
    """With one overflow more that changes nothing, unless the configuration says how many."""
    plugin = SimpleNamespace(deepspeed_config=config)
    assert halvings(SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin))) == expected
