"""The faults of the demo: what each changes in the training, and for how long."""

from __future__ import annotations

import pytest
import torch

from rlexporter.demo.faults import Fault
from rlexporter.demo.injection import Injection


def test_the_learning_rate_jumps_for_one_step() -> None:
    """By a factor of at least a hundred, and it is said; the next step has the old one again."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said: list[str] = []
    injection = Injection(Fault.parse("lr_spike@3", "grpo"), said.append, "grpo")
    rates = []
    for step in range(1, 6):
        injection.before(model, optimizer, step)
        rates.append(optimizer.param_groups[0]["lr"])

    assert rates[2] >= 10.0
    assert [*rates[:2], *rates[3:]] == pytest.approx([0.1] * 4)
    assert [line for line in said if line.startswith("fault in step 3")] == said != []
