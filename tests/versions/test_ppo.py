"""Modern PPO at the tensor: real runs against an independent count, with errors of ours.

Runs where TRL has this trainer (0.12 to 1.12): `make versions` has environments for that. All of it is run in the
newest of them, and in an older one what differs there.
"""

from __future__ import annotations

import random
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from tests.adapters.kept import buckets
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.twice import random_states
from tests.conftest import fetch
from tests.served import errors
from tests.versions.trls import LAST_OF_PPO, once_modern

_tiny = pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)
KeepingPPO, ppo = _tiny.KeepingPPO, _tiny.ppo

pytestmark = [*REAL_TRAINERS, pytest.mark.slow]


def _samples(exporter: Exporter, name: str) -> dict[str, float]:
    """The samples of a metric with one label."""
    return {s.labels[0]: value for s, value in exporter.snapshot.samples.items() if s.metric.series == name}


def _bad(exporter: Exporter) -> dict[tuple[str, ...], float]:
    samples = exporter.snapshot.samples.items()
    return {s.labels: value for s, value in samples if s.metric.series == "rl_nonfinite_values_total" and value}


def _run(trainer: Any) -> Exporter:
    exporter = rlexporter.attach(trainer)
    trainer.train()
    return exporter


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
    "LoRA, accumulating": {"adapter": {}, "gradient_accumulation_steps": 2, "learning_rate": 1e-2},
    "DoRA": {"adapter": {"use_dora": True}, "learning_rate": 1e-2},
    "checkpointing": {"checkpointing": True, "learning_rate": 1e-2},
    "bf16": {"launched": {"ACCELERATE_MIXED_PRECISION": "bf16"}, "learning_rate": 1e-2},
    "weights in bf16": {"dtype": torch.bfloat16, "learning_rate": 1e-2},
    "compiled": {"launched": {"ACCELERATE_DYNAMO_BACKEND": "inductor"}, "learning_rate": 1e-2},
}
OLDER = ("accumulating", "whitened rewards, a penalty")
"""The cases that older versions are tried with."""


def _trained(folder: Path, case: str, attached: bool) -> tuple[Any, Exporter | None]:
    """A trainer that has kept what it saw; bit for bit the same each time."""
    random.seed(0)
    trainer = ppo(folder, kind=KeepingPPO, **{"learning_rate": 1e-3, **CASES[case]})
    trainer.keep()
    exporter = rlexporter.attach(trainer) if attached else None
    trainer.train()
    return trainer, exporter


def _left(trainer: Any) -> tuple[Any, ...]:
    """What a training has left: log lines, weights and the random state of python, numpy and torch."""
    timed = {"eps"}
    lines = [{key: value for key, value in line.items() if key not in timed} for line in trainer.state.log_history]
    weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
    return repr(lines), weights, random_states()  # NaN is as NaN


@pytest.mark.parametrize("case", CASES if LAST_OF_PPO else OLDER)
def test_histograms_equal_an_independent_count_and_training_is_the_same(tmp_path: Path, case: str) -> None:
    """Bucket for bucket; and bit for bit as without an exporter."""
    if "adapter" in CASES[case]:
        pytest.importorskip("peft", reason="peft is not installed")
    trainer, exporter = _trained(tmp_path / "watched", case, True)
    left = _left(trainer)
    assert exporter is not None
    _, text, _ = fetch(f"{exporter.url}/metrics")
    served = {name: (bounds, counts) for name, bounds, counts in buckets(text)}

    assert set(served) - {"rl_step_duration_seconds", "rl_policy_approxkl_dist"} == set(trainer.kept.values)
    for name in trainer.kept.values:
        bounds, counts = served[name]
        assert counts == trainer.kept.histogram(name, bounds), name
        assert counts[-1] > 0, name
    alone = case == "one mini-batch"  # the variance of one number is NaN, as the trainer logs it
    assert set(_bad(exporter)) == ({("rl_policy_ratio_var", "nan")} if alone else set())
    assert errors(exporter) == 0
    assert set(_samples(exporter, "rl_signal_available").values()) == {1.0}
    assert exporter.snapshot.value("rl_steps_total") == exporter.snapshot.value("rl_step") == 4
    exporter.close()

    plain, _ = _trained(tmp_path / "plain", case, False)
    assert len(plain.state.log_history) == 4
    assert _left(plain) == left


@once_modern
@pytest.mark.parametrize(("mini_batches", "accumulation"), [(1, 4), (4, 1), (2, 2)])
def test_the_corrected_ratio_is_about_one(tmp_path: Path, mini_batches: int, accumulation: int) -> None:
    """Whatever the batches are; what is logged is served as it is."""
    trainer = ppo(
        tmp_path, num_mini_batches=mini_batches, gradient_accumulation_steps=accumulation, learning_rate=1e-5, steps=2
    )
    exporter = _run(trainer)
    logged = [line["val/ratio"] for line in trainer.state.log_history if "val/ratio" in line][-1]

    assert exporter.snapshot.value("rl_policy_ratio_mean") == logged
    assert _samples(exporter, "rl_corrected_mean")["rl_policy_ratio_mean"] == pytest.approx(1.0, abs=0.01)
    assert len(_samples(exporter, "rl_corrected_mean")) == 7
    assert errors(exporter) == 0
    exporter.close()


@once_modern
def test_of_a_policy_with_an_adapter_only_that_is_watched(tmp_path: Path) -> None:
    """And the critic, which is trained as a whole. The reference is the policy with the adapter switched off."""
    pytest.importorskip("peft", reason="peft is not installed")
    trainer = ppo(tmp_path, adapter={}, learning_rate=1e-2)
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    exporter = _run(trainer)
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


@once_modern
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


@once_modern
def test_locals_that_are_gone_cost_their_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the variable."""
    monkeypatch.setattr("rlexporter.adapters.ppo._MICRO_BATCH", ("new_logprobs", "entropy", "loss"))
    exporter = _run(ppo(tmp_path, steps=2))
    reasons = {s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"}

    assert reasons == {("ratio", "error", "KeyError: 'ratio'"), ("loss", "error", "KeyError: 'pg_loss'")}
    assert _samples(exporter, "rl_signal_available")["entropy"] == 1
    exporter.close()


@once_modern
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


@once_modern
def test_phases_and_steps(tmp_path: Path) -> None:
    """Rollout, update and save, although the trainer fires few events; one scrape has a whole step.

    Closing takes every wrapper off, from the trainer and from its accelerator.
    """
    trainer = ppo(tmp_path, save_strategy="steps", save_steps=2)
    exporter = _run(trainer)
    value = exporter.snapshot.value

    for phase in ("rollout", "update", "save"):
        assert (value("rl_phase_time_seconds", phase=phase) or 0) > 0.001, phase
        assert value("rl_phase", phase=phase) == 0
    assert value("rl_last_checkpoint_step") == 4
    assert value("rl_last_good_checkpoint_step") == 4
    duration = next(b for s, b in exporter.snapshot.buckets.items() if s.metric.series == "rl_step_duration_seconds")
    assert duration.count == 4
    assert {"log", "train", "_save_checkpoint"} <= trainer.__dict__.keys()
    exporter.close()
    assert not {"log", "train", "_save_checkpoint", "generate_completions"} & trainer.__dict__.keys()
    assert not {"backward", "accumulate"} & trainer.accelerator.__dict__.keys()


@once_modern
def test_report_to_finds_the_trainer(tmp_path: Path) -> None:
    """It is not told of it when it is built."""
    trainer = ppo(tmp_path, report_to=["rlexporter"], steps=2)
    trainer.train()
    callback = next(each for each in trainer.callback_handler.callbacks if hasattr(each, "adopt"))

    assert callback.exporter.snapshot.value("rl_run_state", state="finished") == 1
    assert _samples(callback.exporter, "rl_signal_available")["ratio"] == 1
    assert 'algorithm="ppo"' in fetch(f"{callback.exporter.url}/metrics")[1]
    callback.exporter.close()
