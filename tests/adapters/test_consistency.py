"""Faults that no log line of TRL shows, planted in live GRPO runs; each is named within five steps by its condition.

A healthy run is beside them in which nothing begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

import rlexporter
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.conditions.began import began
from tests.served import errors

pytestmark = REAL_TRAINERS

FAULT = 36
"""The first step with the fault: limits that a run sets itself have a past by then."""
STEPS = 44
PROMPTS = [f"{a}{b}{c}:" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
OPTIONS = {
    "max_steps": STEPS,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "max_completion_length": 12,
}


class _Faulty:
    """Mixed into a trainer; each fault overrides what it breaks."""

    def _breaks(self: Any) -> bool:
        return bool(self.model.training and self.state.global_step >= FAULT - 1)


class Permuted(_Faulty):
    """Advantages in another order than the completions."""

    def _generate_and_score_completions(self: Any, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if self._breaks():
            output["advantages"] = output["advantages"].view(-1, 4).roll(1, 1).reshape(-1)
        return output


class Reversed(_Faulty):
    """Advantages of the wrong sign."""

    def _generate_and_score_completions(self: Any, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**output, "advantages": -output["advantages"]} if self._breaks() else output


class Inverted(_Faulty):
    """A loss mask that counts the padding and nothing else."""

    def _compute_loss(self: Any, model: Any, inputs: Any) -> Any:
        mask = inputs["completion_mask"]
        return super()._compute_loss(model, {**inputs, "completion_mask": 1 - mask} if self._breaks() else inputs)  # type: ignore[misc]


class Ones(_Faulty):
    """A loss mask that counts padding too."""

    def _compute_loss(self: Any, model: Any, inputs: Any) -> Any:
        mask = torch.ones_like(inputs["completion_mask"])
        return super()._compute_loss(model, {**inputs, "completion_mask": mask} if self._breaks() else inputs)  # type: ignore[misc]


class Stale(_Faulty):
    """Old log-probabilities of another policy."""

    def _generate_and_score_completions(self: Any, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if self._breaks():
            output["old_per_token_logps"] = output["old_per_token_logps"] - 0.05
        return output


class Stuck(_Faulty):
    """A data loader that returns the same batch."""

    def _prepare_inputs(self: Any, batch: Any) -> Any:
        if self.state.global_step < FAULT - 1:
            self._kept = batch
        return super()._prepare_inputs(self._kept)  # type: ignore[misc]


class Shortened(_Faulty):
    """Prompts that lost their content."""

    def _prepare_inputs(self: Any, batch: Any) -> Any:
        if self._breaks():
            batch = [{**sample, "prompt": ":"} for sample in batch]
        return super()._prepare_inputs(batch)  # type: ignore[misc]


class Retemplated(_Faulty):
    """Prompts that end otherwise."""

    def _prepare_inputs(self: Any, batch: Any) -> Any:
        if self._breaks():
            batch = [{**sample, "prompt": sample["prompt"] + "e"} for sample in batch]
        return super()._prepare_inputs(batch)  # type: ignore[misc]


class _AtOnce(_Faulty):
    """Breaks something once, before the step."""

    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 0 and not hasattr(self, "_first"):
            self._first = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        if self.state.global_step == FAULT - 2 and not hasattr(self, "_done"):  # seen before the rollout that follows
            self._done = True
            self._break()
        return super().training_step(*args, **kwargs)  # type: ignore[misc]


class Loaded(_AtOnce):
    """The first weights in place of the newest."""

    def _break(self: Any) -> None:
        self.model.load_state_dict(self._first)


class Forgotten(_AtOnce):
    """An optimizer without its moments."""

    def _break(self: Any) -> None:
        self.optimizer.optimizer.state.clear()


class Lost(_AtOnce):
    """Half of the parameters are no longer in the optimizer."""

    def _break(self: Any) -> None:
        for group in self.optimizer.optimizer.param_groups:
            group["params"] = group["params"][::2]


class Frozen(_AtOnce):
    """A layer is trained no longer."""

    def _break(self: Any) -> None:
        self.model.model.layers[0].requires_grad_(False)


class Followed(_Faulty):
    """A reference that follows the policy."""

    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._breaks():
            with torch.no_grad():
                for mine, its in zip(self.ref_model.parameters(), self.model.parameters(), strict=True):
                    mine.lerp_(its, 0.1)
        return super().training_step(*args, **kwargs)  # type: ignore[misc]


@dataclass
class Fault:
    """A fault: what breaks, and the condition that names it."""

    broken: type[Any]
    condition: str
    options: dict[str, Any] = field(default_factory=dict)


TWICE = {"num_iterations": 2}
FAULTS = [
    Fault(Permuted, "advantage_wrong"),
    Fault(Reversed, "advantage_wrong"),
    Fault(Inverted, "loss_mask_wrong"),
    Fault(Ones, "loss_mask_wrong"),
    Fault(Stale, "old_logprobs_stale", TWICE),
    Fault(Stuck, "prompts_stuck"),
    Fault(Shortened, "prompts_short"),
    Fault(Retemplated, "prompt_end_changed"),
    Fault(Loaded, "weights_moved"),
    Fault(Forgotten, "update_jump"),
    Fault(Lost, "weights_lost"),
    Fault(Frozen, "weight_norm_jump"),
    Fault(Followed, "reference_moved"),
]
NAMES = {fault.condition for fault in FAULTS}
Train = Callable[..., Any]


def _trained(folder: Path, *broken: type[Any], kind: str = "GRPO", **options: Any) -> Any:
    trainer = tiny.grpo(folder, kind=kind, **{**OPTIONS, **options})
    trainer.train_dataset = datasets.Dataset.from_dict({"prompt": PROMPTS})
    trainer.__class__ = type("Broken", (*broken, type(trainer)), {})
    exporter = rlexporter.attach(trainer)
    trainer.train()
    assert errors(exporter) == 0
    return exporter


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.broken.__name__)
def test_a_fault_is_named(fault: Fault, tmp_path: Path) -> None:
    """Within five steps (ten where a rollout is used twice), and not before."""
    exporter = _trained(tmp_path, fault.broken, **fault.options)
    steps = [step for (name, _), step in began(exporter).items() if name == fault.condition]

    assert steps, began(exporter)
    assert FAULT - 1 <= min(steps) < FAULT + (10 if fault.options else 5), began(exporter)
    assert not {name for (name, _), step in began(exporter).items() if step < FAULT - 1} & NAMES


@pytest.mark.parametrize(
    ("kind", "options"),
    [("GRPO", {}), ("GRPO", TWICE), ("RLOO", {}), ("GRPO", {"beta": 0.0, "lr_scheduler_type": "cosine"})],
    ids=["grpo", "twice", "rloo", "cosine"],
)
def test_nothing_of_it_begins_in_a_healthy_run(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    """And what is compared is equal: the correlation is 1, no mask is wrong."""
    exporter = _trained(tmp_path, kind=kind, **options)

    assert not {name for name, _ in began(exporter)} & NAMES
    assert exporter.snapshot.value("rl_loss_mask_wrong_fraction") == 0.0
    assert exporter.snapshot.value("rl_advantage_reward_correlation") == pytest.approx(1.0, abs=1e-3)
