"""Truth at the tensor: real GRPO and RLOO runs against an independent count, and what each tap sees or cannot see."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import rlexporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from tests import tiny
from tests.adapters import broken
from tests.adapters.broken import Clock
from tests.adapters.independent import Keeping, KeepingGRPO, KeepingRLOO
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import histogram, labelled, lost, phases, reasons, signals
from tests.adapters.twice import assert_counted_and_same
from tests.served import errors

pytestmark = REAL_TRAINERS


class _ByKeyword:
    """A trainer of a user's that names every argument."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return self._compute_loss(inputs=inputs, model=model)  # type: ignore[attr-defined]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        def named(inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            return calculate(
                completion_ids_list=completion_ids_list, completions=completions, inputs=inputs, prompts=prompts
            )

        calculate: Callable[..., Any] = self._calculate_rewards  # type: ignore[has-type]
        self._calculate_rewards = named
        try:
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        finally:
            self._calculate_rewards = calculate


class _Curious(trl.GRPOTrainer):  # type: ignore[misc] # trl is not checked
    """A trainer of a user's whose loss scores something else besides, without gradients."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        with torch.no_grad():
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            self._get_per_token_logps_and_entropies(model, ids, ids > 0, inputs["completion_ids"].size(1) - 1)
        return super()._compute_loss(model, inputs)


class KeepingByKeyword(_ByKeyword, KeepingGRPO):  # type: ignore[misc] # trl is not checked
    """Counts what it names."""


class KeepingCurious(Keeping, _Curious):
    """Counts only what it is trained on."""


CASES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "grpo": (KeepingGRPO, {"num_iterations": 2, "learning_rate": 1e-2}),
    "grpo on-policy": (KeepingGRPO, {"beta": 0.0}),
    "gspo": (KeepingGRPO, {"num_iterations": 2, "importance_sampling_level": "sequence", "learning_rate": 1e-2}),
    "cispo": (KeepingGRPO, {"num_iterations": 2, "loss_type": "cispo", "epsilon_high": 5.0}),
    "grpo accumulating": (
        KeepingGRPO,
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "steps_per_generation": 4},
    ),
    "grpo masking truncated": (KeepingGRPO, {"num_iterations": 2, "mask_truncated_completions": True}),
    "grpo checkpointing": (KeepingGRPO, {"num_iterations": 2, "gradient_checkpointing": True}),
    "grpo by keyword": (KeepingByKeyword, {"num_iterations": 2}),
    "grpo scoring besides": (KeepingCurious, {"num_iterations": 2}),
    "rloo": (KeepingRLOO, {"num_iterations": 2, "learning_rate": 1e-2}),
    "rloo without kl": (KeepingRLOO, {"beta": 0.0}),
}
SILENT = {
    "grpo on-policy": {"kl": "beta is 0", "ratio": "every update is on-policy", "reference": "there is no model"},
    "rloo without kl": {"kl": "beta is 0", "reference": "there is no model"},
}
"""Signals that a case does not have, and how the reason for it begins; none has a value function."""


@pytest.mark.parametrize("case", CASES)
def test_every_histogram_equals_an_independent_count_and_training_is_the_same(tmp_path: Path, case: str) -> None:
    """Evaluation, and scoring without gradients, count nothing; a signal that this run does not have says why.

    Arguments are found by position, by keyword, and through methods that do not name them, as those that keep.
    """
    keeping, options = CASES[case]
    kind = "RLOO" if keeping is KeepingRLOO else "GRPO"
    options = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 3, "logging_steps": 2, **options}
    _, exporter = assert_counted_and_same(
        lambda lines: tiny.grpo(tmp_path, kind=kind, callbacks=[lines], **options), keeping
    )

    assert histogram(exporter, "rl_grad_norm_dist").count == histogram(exporter, "rl_loss_dist").count == 6
    expected = {"value": "there is no value function", **SILENT.get(case, {})}
    assert signals(exporter) == {name: float(name not in expected) for name in TENSOR_SIGNALS}
    found = reasons(exporter)
    assert found.keys() == expected.keys()
    assert all(found[name].startswith(reason) for name, reason in expected.items()), found


def test_the_feed_has_each_number_once_and_the_log_line_their_mean(tmp_path: Path) -> None:
    """Whatever is logged when: a step's own numbers are in its event."""
    trainer = tiny.grpo(tmp_path, max_steps=7, logging_steps=3, num_iterations=2)
    rlexporter.attach(trainer, record=str(tmp_path / "run.jsonl"))
    trainer.train()
    rlexporter.attach(trainer).close()
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    steps = {event["global_step"]: event["values"] for event in events if event["event"] == "step"}
    lines = {event["global_step"]: event["logs"] for event in events if event["event"] == "log"}

    assert list(steps) == [1, 2, 3, 4, 5, 6, 7]
    for logged in (3, 6):
        for key in ("kl", "entropy", "reward", "completions/mean_length"):
            numbers = [number for step in range(logged - 2, logged + 1) for number in steps[step].get(key, [])]
            assert numbers, key
            assert lines[logged][key] == pytest.approx(math.fsum(numbers) / len(numbers)), (logged, key)
    assert [len(values["kl"]) for values in steps.values()] == [1] * 7


def test_rewards_are_weighed_as_in_their_step(tmp_path: Path) -> None:
    """A curriculum may change the weights of the reward functions in mid-run."""

    class Curriculum(trl.GRPOTrainer):  # type: ignore[misc] # trl is not checked
        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == 2:
                self.reward_weights = torch.tensor([0.0, 2.0])
            return super()._calculate_rewards(*args, **kwargs)

    trainer = tiny.grpo(tmp_path)
    trainer.__class__ = Curriculum
    exporter = rlexporter.attach(trainer)
    trainer.train()
    logged = [line["reward"] for line in trainer.state.log_history if "reward" in line]

    assert histogram(exporter, "rl_reward_dist").mean == pytest.approx(sum(logged) / len(logged))


def test_a_loss_without_log_probabilities_says_so(tmp_path: Path) -> None:
    """As Liger's, which needs a GPU, computes it: what else can be seen is seen."""

    class Fused(trl.GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return model(torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)).logits.logsumexp(-1).mean()

    trainer = tiny.grpo(tmp_path, max_steps=2)
    trainer.__class__ = Fused
    exporter = rlexporter.attach(trainer)
    trainer.train()
    found = reasons(exporter)
    del found["value"]

    assert set(found) == {"logprob", "entropy", "ratio", "kl"}  # the mask is handed to what is not called any more
    assert all("use_liger_kernel" in reason for reason in found.values())
    assert errors(exporter) == 0
    assert signals(exporter)["advantage"] == 1


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_an_error_in_every_tap_leaves_training_alone(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a tensor fails: the run ends as it would have, the errors are counted, the signals are lost."""
    plain = tiny.grpo(tmp_path / "plain", kind=kind, max_steps=5)
    plain.train()
    trainer = tiny.grpo(tmp_path / "watched", kind=kind, max_steps=5, save_strategy="steps", save_steps=2)
    exporter = rlexporter.attach(trainer)
    with monkeypatch.context() as patch:
        for name in ("observe", "undefined", "values"):
            patch.setattr(exporter.run.sink, name, broken.fail)
        patch.setattr(exporter._run.feed, "under_way", broken.fail)
        trainer.train()

    assert trainer.state.global_step == 5
    same = zip(plain.model.state_dict().values(), trainer.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)
    assert labelled(exporter, "rlexporter_errors_total")["tap"] > 20
    assert lost(exporter) == set(TENSOR_SIGNALS)
    found = reasons(exporter)
    del found["value"]
    of_the_run = {reason for reason in found.values() if "on-policy" in reason}
    assert set(found.values()) - of_the_run == {"ZeroDivisionError: see the log of the training"}


_TAPS = [
    *("_generate_and_score_completions", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"),
    *("_compute_loss", "training_step", "evaluate", "_save_checkpoint"),
]


@pytest.mark.parametrize("name", _TAPS)
def test_a_method_that_is_gone_costs_its_signals(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of TRL: the rest is seen as before, and the reason names the method."""
    broken.remove(name, monkeypatch)
    trainer = tiny.grpo(tmp_path, max_steps=1, num_iterations=2)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    found = reasons(exporter)
    del found["value"]

    assert exporter.snapshot.value("rl_step") == 1
    assert errors(exporter) == 0
    assert all(name in reason or "per-token" in reason for reason in found.values())
    assert bool(lost(exporter) - {"value"}) is (name not in ("evaluate", "_save_checkpoint"))


def test_nothing_outlives_its_step(tmp_path: Path) -> None:
    """No log-probabilities, entropies, losses or advantages, and no graph."""
    alive: list[weakref.ref[Any]] = []

    class Tracking(trl.GRPOTrainer):  # type: ignore[misc]
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            alive.extend(weakref.ref(tensor) for tensor in found if tensor is not None)
            return found

        def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super()._compute_loss(*args, **kwargs)
            alive.append(weakref.ref(loss))
            return loss

    def activation(module: Any, inputs: Any, output: Any) -> None:
        if torch.is_tensor(output):
            alive.append(weakref.ref(output))

    seen: list[int] = []

    class Count(TrainerCallback):  # type: ignore[misc] # transformers is not checked
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # What TRL itself keeps for the next update of the same rollout is its buffer's.
            buffered = {id(value) for batch in trainer._buffered_inputs or [] for value in batch.values()}
            seen.append(sum(ref() is not None and id(ref()) not in buffered for ref in alive))

    trainer = tiny.grpo(tmp_path, max_steps=4, num_iterations=2, callbacks=[Count()])
    trainer.__class__ = Tracking
    for module in trainer.model.modules():
        module.register_forward_hook(activation)
    rlexporter.attach(trainer)
    trainer.train()

    assert len(alive) > 300
    assert seen == [0, 0, 0, 0]


def test_phases_add_up_to_the_step(tmp_path: Path, clock: Clock) -> None:
    """Rollout, reward and update, each with its own time; where the run is now is served while it is there."""
    during: list[set[str]] = []

    def slow(completions: list[str], **_: Any) -> list[float]:
        during.append(phases(exporter))
        clock.wait(1.5)
        return tiny.letters(completions)

    trainer = tiny.grpo(tmp_path, rewards=[slow], max_steps=2, save_strategy="steps", save_steps=1)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    spent = labelled(exporter, "rl_phase_time_seconds")

    assert during == [{"reward"}, {"reward"}]
    assert spent["reward"] == pytest.approx(1.5, abs=1e-3)
    assert min(spent["update"], spent["rollout"]) > 0
    step = histogram(exporter, "rl_step_duration_seconds").maximum
    assert spent["reward"] + spent["update"] + spent["rollout"] == pytest.approx(step, abs=1e-3)
    assert spent["save"] > 0
    assert phases(exporter) == set()
