"""How many updates in a row a scaler of fp16 may skip in a healthy run, by the settings of accelerate and DeepSpeed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from accelerate.utils import GradScalerKwargs  # type: ignore[import-untyped]

from rlexporter.adapters.optimizer import halvings


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
def test_the_scaler_of_torch(handler: Any, expected: int) -> None:
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
def test_that_of_deepspeed(config: dict[str, Any], expected: int) -> None:
    """With one overflow more that changes nothing, unless the configuration says how many."""
    plugin = SimpleNamespace(deepspeed_config=config)
    assert halvings(SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin))) == expected
