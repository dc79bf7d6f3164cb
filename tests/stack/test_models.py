"""GRPO and RLOO on models as people train them: adapters of PEFT, checkpointing, lower precision, compiled.

Each is counted independently by a subclass of the trainer, and trained with and without the exporter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

import rlexporter
from tests import tiny
from tests.adapters import independent
from tests.adapters.seen import histogram, labelled
from tests.adapters.twice import assert_counted_and_same
from tests.served import nonfinite

peft = pytest.importorskip("peft", reason="peft is not installed: make stack-tests")

pytestmark = [
    pytest.mark.usefixtures("any_port"),
    pytest.mark.filterwarnings("ignore"),  # those of torch, peft and transformers on each other
]


@dataclass(frozen=True)
class Case:
    """How a model is trained."""

    options: Mapping[str, Any] = field(default_factory=dict)
    adapter: Callable[[], Any] | None = None
    """Makes the configuration of an adapter that the trainer puts on the model."""
    before: Callable[[], Any] | None = None
    """Makes that of an adapter that is on the model already, as after a first training."""
    fp16: bool = False
    """Compute in fp16, with a scaler for the gradients."""


def _lora(**options: Any) -> Any:
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options)


def _dora() -> Any:
    return _lora(use_dora=True)


_OFF_POLICY = {"num_iterations": 2, "learning_rate": 1e-2}
_ACCUMULATING = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "steps_per_generation": 4}
KINDS = ("GRPO", "RLOO")
CASES = {
    "LoRA": Case(_OFF_POLICY, _lora),
    "LoRA, no reference": Case({**_OFF_POLICY, "beta": 0.0}, _lora),
    "LoRA, checkpointing": Case({**_OFF_POLICY, "gradient_checkpointing": True}, _lora),
    "LoRA, accumulating": Case(_ACCUMULATING, _lora),
    "LoRA that is trained on": Case(_OFF_POLICY, before=_lora),
    "DoRA": Case(_OFF_POLICY, _dora),
    "checkpointing": Case({**_OFF_POLICY, "gradient_checkpointing": True}),
    "accumulating": Case(_ACCUMULATING),
    "checkpointing, accumulating": Case({**_ACCUMULATING, "gradient_checkpointing": True}),
    "fp16": Case(_OFF_POLICY, fp16=True),
    "fp16, LoRA, accumulating, checkpointing": Case(
        {**_ACCUMULATING, "gradient_checkpointing": True}, _lora, fp16=True
    ),
    "bf16": Case({**_OFF_POLICY, "bf16": True}),
    "bf16, LoRA": Case({**_OFF_POLICY, "bf16": True}, _lora),
    "compiled": Case({**_OFF_POLICY, "torch_compile": True}),
}
RESUMED = ("LoRA", "checkpointing", "accumulating", "fp16", "fp16, LoRA, accumulating, checkpointing", "compiled")


def _trainer(folder: Path, kind: str, case: Case, **options: Any) -> Any:
    random.seed(0)
    np.random.seed(0)
    model = tiny.model(folder)
    if case.before is not None:
        torch.manual_seed(1)
        model = peft.get_peft_model(model, case.before())
    given = {"peft_config": case.adapter()} if case.adapter is not None else {}
    trainer = tiny.grpo(folder, kind=kind, model=model, **given, **{**case.options, **options})
    if case.fp16:
        _in_fp16(trainer.accelerator)
    return trainer


def _in_fp16(accelerator: Any) -> None:
    """Accelerate wants a GPU for it; torch does it on the CPU as well. It is told so; all else is real."""
    accelerator.scaler = torch.amp.GradScaler("cpu")
    accelerator.native_amp = True
    accelerator.state._mixed_precision = "fp16"


class Norms(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """The norm of the trained weights at the beginning of each step."""

    def __init__(self) -> None:
        self.before: dict[int, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        norms = [each.detach().double().norm() for each in model.parameters() if each.requires_grad]
        self.before[state.global_step + 1] = float(torch.stack(norms).norm())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_histogram_equals_an_independent_count_and_training_is_the_same(
    tmp_path: Path, kind: str, name: str
) -> None:
    """Watched are the trained weights, before each rollout. Each is used for two steps: the last one is that of step 7.

    A scaler of fp16 may skip the first updates.
    """
    norms = Norms()
    keeping = {"GRPO": independent.KeepingGRPO, "RLOO": independent.KeepingRLOO}[kind]
    _, exporter = assert_counted_and_same(
        lambda lines: _trainer(tmp_path, kind, CASES[name], callbacks=[lines, norms], max_steps=8), keeping
    )
    value = exporter.snapshot.value

    assert value("rl_weight_norm") == pytest.approx(norms.before[7], rel=1e-5)
    assert norms.before[7] != norms.before[5]
    assert value("rl_weight_changed_fraction") == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "name"), [("GRPO", name) for name in RESUMED] + [("RLOO", "fp16, LoRA, accumulating, checkpointing")]
)
def test_a_run_is_resumed_under_its_name(tmp_path: Path, kind: str, name: str) -> None:
    """From a checkpoint, which of an adapter holds the adapter alone."""
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer = _trainer(tmp_path, kind, CASES[name], max_steps=4, **saving)
    first = rlexporter.attach(trainer)
    trainer.train()
    first.close()
    trainer = _trainer(tmp_path, kind, CASES[name], max_steps=7, **saving)
    second = rlexporter.attach(trainer)
    trainer.train(resume_from_checkpoint=True)

    assert second.name == first.name
    assert second.snapshot.value("rl_step") == 7
    assert second.snapshot.value("rl_steps_total") == 3
    assert second.snapshot.value("rl_last_checkpoint_step") == 7
    second.close()


@pytest.mark.parametrize(
    ("kind", "halvings", "critical"), [("GRPO", 3, False), ("RLOO", 16, False), ("GRPO", 17, True), ("RLOO", 17, True)]
)
def test_updates_that_the_scaler_skips_are_no_fault_until_it_cannot_scale_less(
    tmp_path: Path, kind: str, halvings: int, critical: bool
) -> None:
    """An infinite gradient is what tells a scaler to halve its scale. From 65536 it can do so 16 times."""
    trainer = _trainer(tmp_path, kind, Case({"learning_rate": 1e-2}, fp16=True), max_steps=halvings + 2)
    _overflow(trainer, halvings)
    exporter = rlexporter.attach(trainer)
    trainer.train()
    found = nonfinite(exporter)
    begun = {name for name, count in labelled(exporter, "rl_condition_events_total").items() if count}
    exporter.close()

    assert exporter.snapshot.value("rl_skipped_updates_total") == halvings
    assert found == ({"rl_grad_norm": 1.0} if critical else {})
    assert ("nonfinite" in begun) is critical
    assert histogram(exporter, "rl_grad_norm_dist").count == 2


def _overflow(trainer: Any, steps: int) -> None:
    """Let the gradients of the first steps overflow, as a loss does whose scale is too large."""
    backward = trainer.accelerator.backward
    left = iter(range(steps))

    def scaled(loss: Any, **kwargs: Any) -> None:
        backward(loss, **kwargs)
        if next(left, None) is not None:
            next(each.grad for each in trainer.model.parameters() if each.grad is not None).fill_(float("inf"))

    trainer.accelerator.backward = scaled
