"""The faults of the demo: what each changes in the training, and for how long; and the versions of TRL it takes."""

from __future__ import annotations

import pytest
import torch

from rlexporter import demo
from rlexporter.demo.faults import Fault
from rlexporter.demo.injection import Injection
from rlexporter.model.errors import SetupError


def test_the_learning_rate_jumps_for_one_step() -> None:
    """By a factor of at least a hundred, and it is said; the next step has the old one again."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said: list[str] = []
    injection = Injection(Fault.parse("lr_spike@3", "grpo", 5), said.append, "grpo")
    rates = []
    for step in range(1, 6):
        injection.before(model, optimizer, step)
        rates.append(optimizer.param_groups[0]["lr"])

    assert rates[2] >= 10.0
    assert [*rates[:2], *rates[3:]] == pytest.approx([0.1] * 4)
    assert [line for line in said if line.startswith("fault in step 3")] == said != []


def test_a_candidate_is_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the trainers of the version that it becomes."""
    monkeypatch.setattr(demo, "version", lambda _: "1.0rc1")
    demo._check_trl("grpo")
    with pytest.raises(SetupError, match=r"trl 1\.0rc1 has no such trainer"):
        demo._check_trl("ppo-legacy")
