"""Faults around legacy PPO: those of its numbers are counted, those of ours and of its version leave training alone."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import trl

import rlexporter
from rlexporter import Exporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from tests.adapters import broken, legacy
from tests.adapters.legacy import ACCELERATOR_TAPS, BATCH, TRAINER_TAPS, Loop, make, run
from tests.adapters.seen import histogram, signals
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
    exporter, loop = run(trainer, 3, **fault.how)

    assert loop.after[1] == {}
    for metric, count in fault.counted.items():
        assert loop.began(metric) == 2, metric
        assert count is None or loop.after[2][metric] == count, metric
    fault.check(exporter, loop)
    legacy.assert_equal(exporter, trainer.kept)
    assert errors(exporter) == 0


@pytest.fixture(scope="module")
def weights() -> list[Any]:
    """Those of a training of two steps without an exporter."""
    return list(Loop(make()).run(2).trainer.model.state_dict().values())


@pytest.mark.parametrize("names", [("observe",), ("log",), ("begin",), ("observe", "log", "begin")])
def test_an_error_in_every_tap_leaves_training_alone(
    names: tuple[str, ...], weights: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a tensor or line fails: the run ends as it would have, the errors are counted."""
    trainer = make()
    exporter = rlexporter.attach(trainer)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(exporter.run if name == "begin" else exporter.run.sink, name, broken.fail)
        patch.setattr(exporter._run.feed, "under_way", broken.fail)
        loop = Loop(trainer).run(2)

    assert len(loop.stats) == 2
    same = zip(weights, trainer.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    assert errors(exporter) > (20 if "observe" in names else 0)
    if "observe" in names:
        assert signals(exporter) == {name: float(name == "reference") for name in TENSOR_SIGNALS}  # seen twice in five


@pytest.mark.parametrize("name", [*TRAINER_TAPS, *ACCELERATOR_TAPS])
def test_a_method_that_is_gone_costs_its_signals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the method."""
    broken.remove(name, monkeypatch)
    exporter, _ = run(make(), 1)
    infos = {s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"}
    reasons = exporter.snapshot.reasons
    lost = {signal: reasons[signal] for signal, cause in infos if signal != "entropy" and cause == "error"}

    assert errors(exporter) == 0
    assert all(name in reason for reason in lost.values())
    assert bool(lost) is (name not in ("generate", "log"))
    assert exporter.snapshot.value("rl_step") == (0 if name == "step" else 1)


def test_nothing_outlives_its_step() -> None:
    """No activations, logits, losses or advantages, and no graph."""
    alive: list[weakref.ref[Any]] = []
    left: list[int] = []

    class Tracking(trl.PPOTrainer):  # type: ignore[misc] # trl is not checked
        def loss(self, *args: Any, **kwargs: Any) -> Any:
            found = super().loss(*args, **kwargs)
            alive.extend(weakref.ref(each) for each in (*args, *found[:2], *found[2].values()))
            return found

        def record_step_stats(self, *args: Any, **data: Any) -> Any:
            alive.extend(weakref.ref(each) for each in data.values() if torch.is_tensor(each))
            return super().record_step_stats(*args, **data)

        def step(self, *args: Any) -> Any:
            found = super().step(*args)
            left.append(sum(ref() is not None for ref in alive))
            return found

    def activation(module: Any, inputs: Any, output: Any) -> None:
        if torch.is_tensor(output):
            alive.append(weakref.ref(output))

    trainer = make(Tracking)
    for module in trainer.model.modules():
        module.register_forward_hook(activation)
    _, loop = run(trainer, 3)
    arrays = [weakref.ref(value) for value in loop.stats[-1].values() if isinstance(value, np.ndarray)]
    loop.stats.clear()

    assert len(alive) > 300
    assert left == [0, 0, 0]
    assert len(arrays) > 5
    assert not any(ref() is not None for ref in arrays)
