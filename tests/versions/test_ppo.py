"""Modern PPO at the tensor: real runs against an independent count, with errors of ours.

Runs where TRL has this trainer (0.12 to 1.12): `make versions` has environments for that. All of it is run in the
newest of them, and in an older one what differs there.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter import Exporter
from tests.adapters.kept import assert_counted
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import histogram, labelled, reasons, signals, state
from tests.adapters.twice import Lines, assert_same, trained
from tests.served import errors, nonfinite
from tests.versions.trls import LAST_OF_PPO, once_modern

_tiny = pytest.importorskip("tests.versions.ppo", reason=f"trl {trl.__version__} has no PPO", exc_type=ImportError)
KeepingPPO, ppo = _tiny.KeepingPPO, _tiny.ppo

pytestmark = [*REAL_TRAINERS, pytest.mark.slow]


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
    "compiled": {"launched": {"ACCELERATE_DYNAMO_BACKEND": "aot_eager"}, "learning_rate": 1e-2},
    "compiled to C++": {"launched": {"ACCELERATE_DYNAMO_BACKEND": "inductor"}, "learning_rate": 1e-2},
}
RARE = ("compiled to C++",)
"""The cases that take a minute, in which taps see what they see in the one before."""
OLDER = ("accumulating", "whitened rewards, a penalty")
"""The cases that older versions are tried with."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, marks=[pytest.mark.soak] if each in RARE else [])
        for each in (CASES if LAST_OF_PPO else OLDER)
    ],
)
def test_histograms_equal_an_independent_count_and_training_is_the_same(tmp_path: Path, case: str) -> None:
    """Bucket for bucket; and bit for bit as without an exporter."""
    if "adapter" in CASES[case]:
        pytest.importorskip("peft", reason="peft is not installed")
    kept: list[Any] = []

    def make(lines: Lines) -> Any:
        trainer = ppo(tmp_path, kind=KeepingPPO, **{"learning_rate": 1e-3, **CASES[case]})
        kept.append(trainer.keep())
        trainer.add_callback(lines)
        return trainer

    def check(exporter: Exporter, text: str) -> None:
        assert_counted(text, kept[0], "rl_policy_approxkl_dist")
        # The variance of one number is NaN, as the trainer logs it.
        assert set(nonfinite(exporter)) == ({"rl_policy_ratio_var"} if case == "one mini-batch" else set())
        assert errors(exporter) == 0
        lost = {"copies", "loss_mask"} | ({"reference"} if "adapter" in CASES[case] else set())
        assert {name for name, available in signals(exporter).items() if not available} == lost
        assert exporter.snapshot.value("rl_steps_total") == exporter.snapshot.value("rl_step") == 4

    watched, plain = trained(make, True, check), trained(make, False)
    assert len(watched[0]) == len(plain[0]) == 4
    for line in (*watched[0], *plain[0]):
        del line["eps"]  # episodes in a second
    assert_same(watched, plain)


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
    assert labelled(exporter, "rl_corrected_mean")["rl_policy_ratio_mean"] == pytest.approx(1.0, abs=0.01)
    assert len(labelled(exporter, "rl_corrected_mean")) == 7
    assert errors(exporter) == 0


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
    assert histogram(exporter, "rl_kl_per_token_dist").maximum > 0


@once_modern
def test_an_error_in_every_tap_leaves_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a tensor fails: the run ends in order, the errors are counted, the signals are lost."""
    plain = ppo(tmp_path / "plain")
    plain.train()
    trainer = ppo(tmp_path / "watched")
    exporter = rlexporter.attach(trainer)
    monkeypatch.setattr(exporter.run.sink, "observe", lambda *_, **__: 1 // 0)
    monkeypatch.setattr(exporter._run.feed, "under_way", lambda *_: 1 // 0)
    trainer.train()

    assert all(map(torch.equal, plain.model.state_dict().values(), trainer.model.state_dict().values()))
    assert {name for name, available in signals(exporter).items() if available} == {
        "reference"
    }  # looked at once in four
    assert labelled(exporter, "rlexporter_errors_total")["tap"] > 40
    assert state(exporter) == "finished"
    monkeypatch.undo()


@once_modern
def test_locals_that_are_gone_cost_their_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the variable."""
    monkeypatch.setattr("rlexporter.adapters.ppo._MICRO_BATCH", ("new_logprobs", "entropy", "loss"))
    exporter = _run(ppo(tmp_path, steps=2))

    found = reasons(exporter)
    assert {name: found.pop(name) for name in ("ratio", "loss")} == {
        "ratio": "KeyError: 'ratio'",
        "loss": "KeyError: 'pg_loss'",
    }
    assert found.keys() == {"copies", "loss_mask"}
    assert signals(exporter)["entropy"] == 1


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
    rlexporter.attach(trainer)
    trainer.train()

    assert len(alive) > 40
    assert seen == [0, 0, 0, 0]


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
    assert histogram(exporter, "rl_step_duration_seconds").count == 4
    assert {"log", "train", "_save_checkpoint"} <= trainer.__dict__.keys()
    exporter.close()
    assert not {"log", "train", "_save_checkpoint", "generate_completions"} & trainer.__dict__.keys()
    assert not {"backward", "accumulate"} & trainer.accelerator.__dict__.keys()
