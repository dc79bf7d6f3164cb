"""Real trainings on a real GPU in bf16, by the trainers that the installed TRL has. `make gpu` runs this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl

import rlexporter
from rlexporter.catalog.run_metrics import TENSOR_SIGNALS
from tests import tiny
from tests.adapters.marks import REAL_TRAINERS
from tests.adapters.seen import signals
from tests.served import errors
from tests.tools import ROOT
from tests.waits import waits_of_the_trainer

pytestmark = [
    *REAL_TRAINERS,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not tiny.ON_GPU or not torch.cuda.is_available(), reason="only where `make gpu` runs"),
]
_OURS = str(ROOT / "rlexporter") + "/"
STEPS = 8


def _grpo(folder: Path, kind: str = "GRPO") -> Any:
    return tiny.grpo(folder, kind=kind, bf16=True, max_steps=STEPS, num_iterations=2, steps_per_generation=2)


def _rloo(folder: Path) -> Any:
    return _grpo(folder, "RLOO")


def _ppo(folder: Path) -> Any:
    from tests.versions.ppo import ppo

    return ppo(folder, steps=STEPS, bf16=True, use_cpu=False)


def _legacy(_: Path) -> Any:
    from tests.adapters import legacy

    return legacy.make(accelerator_kwargs={"mixed_precision": "bf16"})


def _trainers() -> dict[str, tuple[Callable[[Path], Any], set[str]]]:
    """Each trainer, and what nobody can see in it."""
    if hasattr(getattr(trl, "PPOTrainer", None), "step"):
        return {"legacy PPO": (_legacy, {"entropy", "copies", "loss_mask"})}
    found: dict[str, tuple[Callable[[Path], Any], set[str]]] = {"GRPO": (_grpo, {"value"}), "RLOO": (_rloo, {"value"})}
    if tuple(map(int, trl.__version__.split(".")[:2])) < (1, 13):
        found["PPO"] = _ppo, {"copies", "loss_mask"}
    return found


TRAINERS = _trainers()


def _train(trainer: Any) -> None:
    if hasattr(trainer, "train"):
        trainer.train()
        return
    from tests.adapters.legacy import Loop

    Loop(trainer).run(STEPS)


@pytest.mark.parametrize("kind", TRAINERS)
def test_no_wait_is_ours(tmp_path: Path, kind: str) -> None:
    """The trainer's own code waits for the GPU in each step, which shows that a wait is seen; ours never does."""
    make, lost = TRAINERS[kind]
    trainer = make(tmp_path)
    exporter = rlexporter.attach(trainer)
    with waits_of_the_trainer() as waits:
        _train(trainer)
    exporter.close()

    def innermost(stack: str) -> str:
        """The first file that is neither torch nor the test: who asked for the wait."""
        return next(each for each in stack.split(" < ") if "/torch/" not in each and not each.endswith("waits.py"))

    ours = {stack for stack in waits if _OURS in innermost(stack)}
    assert len(waits) > STEPS
    assert sorted(ours) == []
    assert errors(exporter) == 0
    assert signals(exporter) == {signal: float(signal not in lost) for signal in TENSOR_SIGNALS}
    assert exporter.snapshot.value("rl_weight_norm") is not None


@pytest.mark.parametrize("kind", TRAINERS)
def test_training_is_the_same(tmp_path: Path, kind: str) -> None:
    """Bit for bit, where a training without us gives the same weights twice."""

    def trained(watched: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        trainer = TRAINERS[kind][0](tmp_path)
        if watched:
            rlexporter.attach(trainer)
        _train(trainer)
        return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}

    without, again, watched = (trained(each) for each in (False, False, True))
    if any(not torch.equal(without[name], again[name]) for name in without):
        pytest.skip("this GPU does not give the same weights twice")
    assert [name for name in without if not torch.equal(without[name], watched[name])] == []
