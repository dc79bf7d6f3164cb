"""Planted faults in legacy PPO: each is counted in its step, under the name of what it is in, and nothing else is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rlexporter import Exporter
from tests.adapters import legacy
from tests.adapters.legacy import BATCH, Loop, make
from tests.adapters.seen import histogram
from tests.served import errors

pytestmark = pytest.mark.usefixtures("any_port")


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in step 2."""

    how: dict[str, Any]
    counted: dict[str, float | None] = field(default_factory=dict)
    """How many values that are not finite each metric then has; None: any number."""
    check: Callable[[Exporter, Loop], None] = lambda exporter, loop: None
    """What else is seen of it."""


def _rewards(count: int, kind: float) -> dict[str, Any]:
    """Rewards of which ``count`` are of this kind."""

    def rewards(step: int, responses: list[Any]) -> list[Any]:
        given = legacy.letters(step, responses)
        return [torch.tensor(kind)] * count + given[count:] if step == 2 else given

    return {"rewards": rewards}


def _broken(how: Callable[[Any], Any]) -> dict[str, Any]:
    """Break something between the rollout and the step."""

    def plant(trainer: Any, step: int) -> None:
        if step == 2:
            with torch.no_grad():
                how(trainer)

    return {"plant": plant}


def _gradient(factor: float) -> dict[str, Any]:
    """Multiply one gradient of the first of four updates."""

    def explode(trainer: Any) -> None:
        hooks: list[Any] = []

        def once(gradient: Any) -> Any:
            hooks.pop().remove()
            return gradient * factor

        hooks.append(trainer.model.v_head.summary.weight.register_hook(once))

    return _broken(explode)


def _value_head(number: float) -> dict[str, Any]:
    return _broken(lambda trainer: trainer.model.v_head.summary.weight.fill_(number))


def _policy_weight() -> dict[str, Any]:
    return _broken(lambda trainer: next(trainer.model.pretrained_model.parameters()).fill_(math.nan))


def _is_no_nan(exporter: Exporter, loop: Loop) -> None:
    """An infinite reward is counted for what it was when it was given; what it makes of the advantages is NaN."""

    def bad(metric: str, kind: str) -> float:
        return exporter.snapshot.value("rl_nonfinite_values_total", metric=metric, kind=kind) or 0

    assert (bad("rl_reward_dist", "+inf"), bad("rl_reward_dist", "nan")) == (1, 0)
    assert bad("rl_advantage_dist", "nan") > 0


def _is_in_the_last_bucket(exporter: Exporter, loop: Loop) -> None:
    """A huge value is finite."""
    values = histogram(exporter, "rl_value_dist")
    assert "rl_value_dist" not in loop.after[2]
    assert values.counts[0] + values.counts[-1] > BATCH
    assert max(-values.minimum, values.maximum) > 1e28


def _stays_visible(exporter: Exporter, loop: Loop) -> None:
    """An exploding gradient of one update is averaged away in what is logged: it is in the histogram."""
    norms = histogram(exporter, "rl_grad_norm_dist")
    assert (norms.count, norms.counts[-1]) == (12, 1)
    assert norms.maximum > 1e6
    assert loop.after[3] == {}


FAULTS = {
    "one NaN reward": Fault(_rewards(1, math.nan), {"rl_reward_dist": 1, "rl_advantage_dist": None}),
    "all rewards NaN": Fault(_rewards(BATCH, math.nan), {"rl_reward_dist": 8, "rl_return_dist": None}),
    "an infinite reward": Fault(
        _rewards(1, math.inf), {"rl_reward_dist": 1, "rl_advantage_dist": None}, check=_is_no_nan
    ),
    "NaN in the value head": Fault(_value_head(math.nan), {"rl_value_dist": None, "rl_value_loss": 4}),
    "1e30 in the value head": Fault(
        _value_head(1e30), {"rl_value_loss": 4, "rl_loss": 4}, check=_is_in_the_last_bucket
    ),
    "NaN weight": Fault(_policy_weight(), {"rl_weight_norm": 1, "rl_logprob_dist": None}),
    "NaN gradient": Fault(_gradient(math.nan), {"rl_grad_norm": 4, "rl_weight_norm": 1}),
    "exploding gradient": Fault(_gradient(1e12), check=_stays_visible),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_counted_in_its_step(name: str) -> None:
    """As often as it is there, under the name of what it is in; what is counted before and after agrees as well."""
    fault = FAULTS[name]
    trainer = make(legacy.Keeping)
    exporter, loop = legacy.run(trainer, 3, **fault.how)

    assert loop.after[1] == {}
    for metric, count in fault.counted.items():
        assert loop.began(metric) == 2, metric
        assert count is None or loop.after[2][metric] == count, metric
    fault.check(exporter, loop)
    legacy.assert_equal(exporter, trainer.kept)
    assert errors(exporter) == 0
