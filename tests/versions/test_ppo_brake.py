"""Modern PPO, whose loop does not look at `should_training_stop`, ends between two steps all the same."""

from __future__ import annotations

import os
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import rlexporter
from tests.served import errors
from tests.versions.trls import modern

pytestmark = [pytest.mark.usefixtures("any_port"), pytest.mark.filterwarnings("ignore"), modern]


class Spoils(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Makes weights of the critic NaN in the middle of step 5; counts the ends of the training, and of steps."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.ends.append(f"step {state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append("training")


def _trainer(folder: Path, bad: int, **options: Any) -> Any:
    from tests.versions.ppo import ppo

    trainer = ppo(folder, steps=8, save_strategy="steps", save_steps=2, save_total_limit=2, **options)
    backward = trainer.accelerator.backward

    def spoiled(loss: Any, *args: Any, **kwargs: Any) -> None:
        """Gradients of one step are NaN, and with them the weights from then on."""
        backward(loss * (nan if trainer.state.global_step == bad - 1 else 1), *args, **kwargs)

    trainer.accelerator.backward = spoiled
    trainer.add_callback(Spoils())
    return trainer


def _ends(trainer: Any) -> list[str]:
    return next(each.ends for each in trainer.callback_handler.callbacks if isinstance(each, Spoils))


@pytest.mark.parametrize("words", ["stop", "save,stop"])
def test_it_ends_in_the_step_that_is_bad(tmp_path: Path, words: str) -> None:
    """Every callback hears of the end of that step and of the training; `train()` returns as if it were done."""
    trainer = _trainer(tmp_path, bad=5)
    exporter = rlexporter.attach(trainer, on_critical=words, linger=0)
    trainer.train()

    assert _ends(trainer) == [*(f"step {step}" for step in range(1, 6)), "training"]
    assert (exporter.state.value, exporter.should_stop, errors(exporter)) == ("stopped", True, 0)
    assert exporter.snapshot.value("rl_run_exception_info", exception="on_critical") == 1
    found = {name for name in os.listdir(trainer.args.output_dir) if "checkpoint" in name}
    assert found == {"checkpoint-2", "checkpoint-4"} | ({"suspect-checkpoint-5"} if "save" in words else set())
    assert trainer.args.save_total_limit == 2
    exporter.close()
    assert "on_step_end" not in vars(trainer.callback_handler)


def test_a_healthy_training_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    """With all that may be asked for."""
    weights = []
    for words in (None, "save,stop"):
        trainer = _trainer(tmp_path / str(words), bad=0)
        exporter = rlexporter.attach(trainer, on_critical=words, keep_good=True, linger=0)
        trainer.train()
        weights.append([each.detach().clone() for each in trainer.model.parameters()])
        assert (exporter.state.value, errors(exporter)) == ("finished", 0)
        assert _ends(trainer)[-2:] == [f"step {trainer.state.global_step}", "training"]
        exporter.close()
    assert all(torch.equal(*pair) for pair in zip(*weights, strict=True))
