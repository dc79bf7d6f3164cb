"""Taps on legacy PPO: errors and methods that are gone leave the training alone; nothing is kept, or waited for."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trl
from torch._subclasses.fake_tensor import FakeTensorMode

import rlexporter
from rlexporter import Exporter
from rlexporter.adapters.ppo_legacy import LegacyTaps
from rlexporter.catalog import TENSOR_SIGNALS
from rlexporter.tensors.tally import Tally
from tests.adapters import broken
from tests.adapters.legacy import ACCELERATOR_TAPS, TRAINER_TAPS, Loop, make, run
from tests.adapters.seen import signals
from tests.served import errors
from tests.waits import Watch

pytestmark = pytest.mark.usefixtures("any_port")


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
        patch.setattr(exporter.run.store, "phase", broken.fail)
        loop = Loop(trainer).run(2)

    assert len(loop.stats) == 2
    same = zip(weights, trainer.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    assert errors(exporter) > (20 if "observe" in names else 0)
    if "observe" in names:
        assert signals(exporter) == dict.fromkeys(TENSOR_SIGNALS, 0.0)


@pytest.mark.parametrize("name", [*TRAINER_TAPS, *ACCELERATOR_TAPS])
def test_a_method_that_is_gone_costs_its_signals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the method."""
    broken.remove(name, monkeypatch)
    exporter, _ = run(make(), 1)
    infos = {s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"}
    lost = {signal: reason for signal, cause, reason in infos if signal != "entropy" and cause == "error"}

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


class _Accelerator:
    process_index, local_process_index, num_processes, sync_gradients = 0, 0, 1, True
    device = torch.device("cuda")

    def backward(self, loss: Any) -> None:
        pass

    def log(self, values: Any) -> None:
        pass

    def unwrap_model(self, model: Any) -> Any:
        return model


class StandIn:
    """What the taps look at, on ``device``: a real trainer reads its own tensors, which waits."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.model = torch.nn.ParameterList([torch.ones(3, device=device)])
        self.accelerator = _Accelerator()
        self.config = SimpleNamespace(ratio_threshold=0.5)

    def generate(self) -> None:
        pass

    def step(self, queries: Any, responses: Any, scores: Any) -> Any:
        plain = torch.ones(4, 6, device=self.device)
        mask = plain > 0
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)  # a pretended tensor has no autograd
        self.compute_advantages(plain, plain, mask)
        self.loss(plain, mask=mask)
        self.accelerator.backward(plain)
        self.record_step_stats(
            0.1, masks=mask, kls=plain, logprobs=plain, ref_logprobs=plain, queries=queries, responses=responses
        )
        return {"objective/kl": 0.1}

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        return values, rewards, rewards

    def loss(self, ratio: Any, mask: Any) -> Any:
        losses = {f"loss/{name}": ratio.sum() for name in ("total", "policy", "value")}
        return 0, 0, {"policy/ratio": ratio, **losses}

    def record_step_stats(self, kl_coef: float, **data: Any) -> Any:
        return {"objective/kl_dist": data["kls"].sum(1)}


def test_no_tap_waits_for_a_pretended_gpu(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """All signals are seen there, the skipped updates among them, and nothing reads what lies there."""
    monkeypatch.setattr(Tally, "arrived", lambda _: [])  # the buffers, of the host on a real GPU, pretend as well
    with FakeTensorMode(), Watch() as watch:
        trainer = StandIn("cuda")
        LegacyTaps(trainer, exporter.run).install()
        for _ in range(2):
            trainer.step([[1]], [[1, 2]], [torch.ones((), device="cuda"), torch.ones(1, device="cuda")])
    (tally,) = exporter.run.sink._pending.tally._devices.values()
    counted = {series.metric.series for series in tally._slot_of}

    assert signals(exporter) == {**dict.fromkeys(TENSOR_SIGNALS, 1.0), "entropy": 0.0}
    assert errors(exporter) == 0
    assert {"rl_skipped_updates_total", "rl_reward_dist", "rl_weight_norm", "rl_grad_norm_dist"} < counted
    assert len(watch.calls) > 200
