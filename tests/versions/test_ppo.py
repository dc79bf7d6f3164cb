"""Modern PPO at the tensor: real runs against an independent count, with planted faults and errors of ours.

Runs where TRL has this trainer (0.12 to 1.12): `make versions` has environments for that.
"""

from __future__ import annotations

import contextlib
import math
import random
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from tests.adapters.kept import buckets
from tests.adapters.twice import random_states
from tests.conftest import fetch
from tests.served import errors

_tiny = pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)
KeepingPPO, ppo = _tiny.KeepingPPO, _tiny.ppo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def _samples(exporter: Exporter, name: str) -> dict[str, float]:
    """The samples of a metric with one label."""
    return {s.labels[0]: value for s, value in exporter.snapshot.samples.items() if s.metric.series == name}


def _bad(exporter: Exporter) -> dict[tuple[str, ...], float]:
    samples = exporter.snapshot.samples.items()
    return {s.labels: value for s, value in samples if s.metric.series == "rl_nonfinite_values_total" and value}


class Watch(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """What had been counted when each step was logged, and a fault before a step."""

    def __init__(self, exporter: Exporter, step: int = 0, plant: Callable[[], None] | None = None) -> None:
        self.exporter, self.step, self.plant = exporter, step, plant
        self.after: dict[int, dict[tuple[str, ...], float]] = {}

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.after[state.global_step] = _bad(self.exporter)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.plant and state.global_step == self.step - 1:
            self.plant()

    def began(self, metric: str, kind: str = "nan") -> int:
        """The first step after which a metric had bad values of this kind."""
        return min((step for step, bad in self.after.items() if (metric, kind) in bad), default=0)


def _run(trainer: Any, step: int = 0, plant: Callable[[], None] | None = None) -> tuple[Exporter, Watch]:
    """Attach, train, and say how it went; the crash of the next sampling is let happen."""
    exporter = rlexporter.attach(trainer)
    watch = Watch(exporter, step, plant)
    trainer.add_callback(watch)
    with contextlib.suppress(RuntimeError):
        trainer.train()
    return exporter, watch


def _skip_without_peft(options: Mapping[str, Any]) -> None:
    if "adapter" in options:
        pytest.importorskip("peft", reason="peft is not installed")


CASES: dict[str, dict[str, Any]] = {
    "two mini-batches": {"learning_rate": 1e-2},
    "accumulating": {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 2},
    "k3, no whitening": {"kl_estimator": "k3", "learning_rate": 1e-2, "num_ppo_epochs": 3},
    "whitened rewards, a penalty": {
        "whiten_rewards": True,
        "missing_eos_penalty": 1.0,
        "per_device_train_batch_size": 16,
    },
    "one mini-batch": {"num_mini_batches": 1, "num_ppo_epochs": 1},
    "LoRA": {"adapter": {}, "learning_rate": 1e-2},
    "LoRA, accumulating": {"adapter": {}, "gradient_accumulation_steps": 2, "learning_rate": 1e-2},
    "DoRA": {"adapter": {"use_dora": True}, "learning_rate": 1e-2},
    "checkpointing": {"checkpointing": True, "learning_rate": 1e-2},
    "bf16": {"launched": {"ACCELERATE_MIXED_PRECISION": "bf16"}, "learning_rate": 1e-2},
    "weights in bf16": {"dtype": torch.bfloat16, "learning_rate": 1e-2},
    "compiled": {"launched": {"ACCELERATE_DYNAMO_BACKEND": "inductor"}, "learning_rate": 1e-2},
}
STACK = ("LoRA", "DoRA", "accumulating", "checkpointing", "bf16", "weights in bf16", "compiled")
"""Cases of which it is seen too that training is the same without an exporter."""


@pytest.mark.parametrize("case", CASES)
def test_every_histogram_equals_an_independent_count(tmp_path: Path, case: str) -> None:
    """Bucket for bucket."""
    if "kl_estimator" in CASES[case] and trl.__version__ < "0.17":
        pytest.skip("this version has the k1 estimator only")
    _skip_without_peft(CASES[case])
    trainer = ppo(tmp_path, kind=KeepingPPO, **CASES[case])
    kept = trainer.keep()
    exporter, _ = _run(trainer)
    _, text, _ = fetch(f"{exporter.url}/metrics")
    served = {name: (bounds, counts) for name, bounds, counts in buckets(text)}

    assert set(served) - {"rl_step_duration_seconds", "rl_policy_approxkl_dist"} == set(kept.values)
    for name in kept.values:
        bounds, counts = served[name]
        assert counts == kept.histogram(name, bounds), name
        assert counts[-1] > 0, name
    alone = case == "one mini-batch"  # the variance of one number is NaN, as the trainer logs it
    assert set(_bad(exporter)) == ({("rl_policy_ratio_var", "nan")} if alone else set())
    assert errors(exporter) == 0
    assert set(_samples(exporter, "rl_signal_available").values()) == {1.0}
    assert exporter.snapshot.value("rl_steps_total") == exporter.snapshot.value("rl_step") == 4
    exporter.close()


@pytest.mark.parametrize("accumulation", [1, 2, 4])
@pytest.mark.parametrize("mini_batches", [1, 2, 4])
def test_the_corrected_ratio_is_about_one(tmp_path: Path, mini_batches: int, accumulation: int) -> None:
    """Whatever the batches are; what is logged is served as it is."""
    trainer = ppo(
        tmp_path, num_mini_batches=mini_batches, gradient_accumulation_steps=accumulation, learning_rate=1e-5, steps=2
    )
    exporter, _ = _run(trainer)
    logged = [line["val/ratio"] for line in trainer.state.log_history if "val/ratio" in line][-1]

    assert exporter.snapshot.value("rl_policy_ratio_mean") == logged
    assert _samples(exporter, "rl_corrected_mean")["rl_policy_ratio_mean"] == pytest.approx(1.0, abs=0.01)
    assert len(_samples(exporter, "rl_corrected_mean")) == 7
    assert errors(exporter) == 0
    exporter.close()


class TestPlantedFaults:
    """Each is counted in the step in which it happens."""

    @pytest.mark.parametrize(("value", "kind"), [(math.nan, "nan"), (math.inf, "+inf")])
    @pytest.mark.parametrize("rows", [1, 4])
    def test_rewards(self, tmp_path: Path, value: float, kind: str, rows: int) -> None:
        """One of them, or all."""
        trainer = ppo(tmp_path)

        def plant() -> None:
            def hook(module: Any, inputs: Any, output: Any) -> Any:
                output = output.clone()
                output[:rows] = value
                return output

            trainer.reward_model.score.register_forward_hook(hook)

        exporter, watch = _run(trainer, 3, plant)
        assert watch.began("rl_reward_dist", kind) == 3
        assert watch.after[3]["rl_reward_dist", kind] == rows
        assert watch.began("rl_advantage_dist") == 3
        exporter.close()

    def test_nan_in_the_value_head(self, tmp_path: Path) -> None:
        """Values, returns and losses of that step; then the sampling fails, and it is still there."""
        trainer = ppo(tmp_path)
        exporter, watch = _run(trainer, 3, lambda: _set(trainer.value_model.score.weight, math.nan))

        for metric in ("rl_value_dist", "rl_return_dist", "rl_value_loss", "rl_policy_loss", "rl_grad_norm"):
            assert watch.began(metric) == 3, metric
        assert watch.after[3]["rl_value_loss", "nan"] == 4
        assert exporter.snapshot.value("rl_run_state", state="failed") == 1
        assert exporter.snapshot.value("rl_step") == 3
        exporter.close()

    def test_an_overflow_of_the_value_loss(self, tmp_path: Path) -> None:
        """1e30 in the value head: its square is beyond every float32."""
        trainer = ppo(tmp_path)
        exporter, watch = _run(trainer, 3, lambda: _set(trainer.value_model.score.weight, 1e30))

        assert watch.began("rl_value_loss", "+inf") == 3
        value = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_value_dist")
        assert value.counts[0] + value.counts[-1] > 0
        exporter.close()

    def test_nan_weights(self, tmp_path: Path) -> None:
        """After the last update of a step: its log line is still fine, and the next sampling fails."""
        trainer = ppo(tmp_path)
        exporter = rlexporter.attach(trainer)
        step, calls = trainer.optimizer.step, 0

        def poisoned(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            found = step(*args, **kwargs)
            if calls == 12:
                _set(trainer.model.policy.lm_head.weight, math.nan)
            return found

        trainer.optimizer.step = poisoned
        exporter, watch = _run(trainer)
        assert watch.began("rl_weight_norm") == 3
        assert list(watch.after[3]) == [("rl_weight_norm", "nan")]
        assert exporter.snapshot.value("rl_run_state", state="failed") == 1
        exporter.close()

    def test_exploding_gradients(self, tmp_path: Path) -> None:
        """For one step: in the upper buckets, and gone from the next log line."""
        trainer = ppo(tmp_path)
        hooks: list[Any] = []

        def plant() -> None:
            hooks.append(trainer.model.value_model.score.weight.register_hook(lambda gradient: gradient * 1e8))

        exporter, _ = _run(trainer, 3, plant)
        found = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_grad_norm_dist")
        assert hooks
        assert found.maximum > 1e6
        assert sum(found.counts[-2:]) >= 4
        exporter.close()


def _set(weight: Any, value: float) -> None:
    with torch.no_grad():
        weight.view(-1)[0] = value


def test_of_a_policy_with_an_adapter_only_that_is_watched(tmp_path: Path) -> None:
    """And the critic, which is trained as a whole. The reference is the policy with the adapter switched off."""
    pytest.importorskip("peft", reason="peft is not installed")
    trainer = ppo(tmp_path, adapter={}, learning_rate=1e-2)
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    exporter, _ = _run(trainer)
    after = dict(trainer.model.named_parameters())
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    norms = torch.stack([weight.detach().double().norm() for weight in after.values() if weight.requires_grad])

    assert trainer.ref_model is None
    assert exporter.snapshot.value("rl_weight_norm") == pytest.approx(float(norms.norm()), rel=1e-5)
    assert {name for name in changed if name.startswith("policy.")} == {name for name in after if "lora_" in name}
    assert changed == {name for name, weight in after.items() if weight.requires_grad}
    assert exporter.snapshot.value("rl_ref_dropout") == 0
    kl = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_kl_per_token_dist")
    assert kl.maximum > 0
    exporter.close()


def _trained(folder: Path, attached: bool, **options: Any) -> tuple[Any, Any, Any]:
    random.seed(0)
    trainer = ppo(folder, **{"learning_rate": 1e-3, **options})
    exporter = rlexporter.attach(trainer) if attached else None
    trainer.train()
    if exporter:
        exporter.close()
    timed = {"eps"}
    lines = [{k: v for k, v in line.items() if k not in timed} for line in trainer.state.log_history]
    return lines, {name: value.clone() for name, value in trainer.model.state_dict().items()}, random_states()


@pytest.mark.parametrize("case", ["two mini-batches", *STACK])
def test_training_is_the_same_with_and_without(tmp_path: Path, case: str) -> None:
    """Bit for bit: log lines, weights and the random state of python, numpy and torch."""
    _skip_without_peft(CASES[case])
    (lines, weights, states), others = (_trained(tmp_path / str(on), on, **CASES[case]) for on in (False, True))

    assert len(lines) == 4
    assert lines == others[0]
    assert all(torch.equal(value, others[1][name]) for name, value in weights.items())
    assert states == others[2]


def test_an_error_in_every_tap_leaves_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a tensor fails: the run ends in order, the errors are counted, the signals are lost."""
    plain = ppo(tmp_path / "plain")
    plain.train()
    trainer = ppo(tmp_path / "watched")
    exporter = rlexporter.attach(trainer)
    monkeypatch.setattr(exporter.run.sink, "observe", lambda *_, **__: 1 // 0)
    monkeypatch.setattr(exporter.run.store, "phase", lambda *_: 1 // 0)
    trainer.train()

    assert all(map(torch.equal, plain.model.state_dict().values(), trainer.model.state_dict().values()))
    assert not any(_samples(exporter, "rl_signal_available").values())
    assert _samples(exporter, "rlexporter_errors_total")["tap"] > 40
    assert exporter.snapshot.value("rl_run_state", state="finished") == 1
    monkeypatch.undo()
    exporter.close()


def test_locals_that_are_gone_cost_their_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the variable."""
    monkeypatch.setattr("rlexporter.adapters.ppo._MICRO_BATCH", ("new_logprobs", "entropy", "loss"))
    exporter, _ = _run(ppo(tmp_path, steps=2))
    reasons = {s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"}

    assert reasons == {("ratio", "error", "KeyError: 'ratio'"), ("loss", "error", "KeyError: 'pg_loss'")}
    assert _samples(exporter, "rl_signal_available")["entropy"] == 1
    exporter.close()


def test_nothing_outlives_its_step(tmp_path: Path) -> None:
    """No logits and no graph of an update: reading a frame's locals must not keep them."""
    alive: list[weakref.ref[Any]] = []
    seen: list[int] = []
    trainer = ppo(tmp_path)

    def keep(module: Any, inputs: Any, output: Any) -> None:
        alive.append(weakref.ref(output))

    class Count(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(sum(ref() is not None for ref in alive))

    trainer.model.policy.lm_head.register_forward_hook(keep)
    trainer.model.value_model.score.register_forward_hook(keep)
    trainer.add_callback(Count())
    exporter = rlexporter.attach(trainer)
    trainer.train()

    assert len(alive) > 40
    assert seen == [0, 0, 0, 0]
    exporter.close()


def test_closing_takes_every_wrapper_off(tmp_path: Path) -> None:
    """From the trainer and from its accelerator."""
    trainer = ppo(tmp_path, steps=2)
    exporter, _ = _run(trainer)
    assert {"log", "train", "_save_checkpoint"} <= trainer.__dict__.keys()

    exporter.close()
    assert not {"log", "train", "_save_checkpoint", "generate_completions"} & trainer.__dict__.keys()
    assert not {"backward", "accumulate"} & trainer.accelerator.__dict__.keys()


def test_phases_and_steps(tmp_path: Path) -> None:
    """Rollout, update and save, although the trainer fires few events; one scrape has a whole step."""
    trainer = ppo(tmp_path, save_strategy="steps", save_steps=2)
    exporter, _ = _run(trainer)
    value = exporter.snapshot.value

    for phase in ("rollout", "update", "save"):
        assert (value("rl_phase_time_seconds", phase=phase) or 0) > 0.001, phase
        assert value("rl_phase", phase=phase) == 0
    assert value("rl_last_checkpoint_step") == 4
    assert value("rl_last_good_checkpoint_step") == 4
    duration = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_step_duration_seconds")
    assert duration.count == 4
    exporter.close()


def test_report_to_finds_the_trainer(tmp_path: Path) -> None:
    """It is not told of it when it is built."""
    trainer = ppo(tmp_path, report_to=["rlexporter"], steps=2)
    trainer.train()
    callback = next(each for each in trainer.callback_handler.callbacks if hasattr(each, "adopt"))

    assert callback.exporter.snapshot.value("rl_run_state", state="finished") == 1
    assert _samples(callback.exporter, "rl_signal_available")["ratio"] == 1
    assert 'algorithm="ppo"' in fetch(f"{callback.exporter.url}/metrics")[1]
    callback.exporter.close()
