"""The run of the demo: builds the trainer, attaches the exporter, trains, and tells what was served.

Imports trl and what comes with it; `rlexporter.demo.quiet` goes first.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import trl
from transformers import PrinterCallback, TrainerCallback

from rlexporter.attach import attach
from rlexporter.demo import tiny
from rlexporter.demo.display import Display
from rlexporter.demo.faults import Fault
from rlexporter.demo.injection import Injection
from rlexporter.exporter import Exporter

_TRAINERS: dict[str, Any] = {
    "grpo": (trl.GRPOTrainer, trl.GRPOConfig),
    "rloo": (trl.RLOOTrainer, trl.RLOOConfig),
}
_BETA = {"grpo": 0.12, "rloo": 0.04}
"""Enough for a run that learns slowly and keeps its entropy."""
_SEED = 0
_WATCH_SECONDS = 600.0


def run(*, algorithm: str, steps: int, port: int | None, fault: Fault | None, linger: float | None) -> int:
    """Train for ``steps`` steps; the exit status.

    ``linger``: seconds for which the final state is served at least; without it ten minutes on a terminal, and
    elsewhere until it was scraped.
    """
    display = Display()
    with tempfile.TemporaryDirectory(prefix="rlexporter-demo-") as folder:
        trainer = _trainer(algorithm, steps, fault, Path(folder), display)
        exporter = attach(trainer, port=port, run=f"demo-{algorithm}-{os.getpid()}")
        display.watch(exporter)
        failure = _train(trainer, fault)
        display.summary()
        if failure:
            display.say(f"the fault ended the run: {failure}")
        _stay(exporter, display, linger)
    return 0


def _train(trainer: Any, fault: Fault | None) -> str:
    """Train; what ended it, where that was no good end."""
    try:
        trainer.train()
    except KeyboardInterrupt:
        return ""
    except Exception as error:
        if fault is None:
            raise
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def _stay(exporter: Exporter, display: Display, linger: float | None) -> None:
    """Leave the final state up for somebody who looks at it."""
    seconds = linger if linger is not None else (_WATCH_SECONDS if sys.stdout.isatty() else 0.0)
    if seconds <= 0:
        return
    display.say(f"the final state stays on {exporter.url} for {seconds:.0f} s; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(seconds)


def _trainer(algorithm: str, steps: int, fault: Fault | None, folder: Path, display: Display) -> Any:
    """A real trainer of TRL on a tiny model, with two reward functions, evaluation and two iterations a batch."""
    injection = Injection(fault, display.say) if fault else None
    kind, config = _TRAINERS[algorithm]
    trainer = kind(
        model=tiny.model(folder / "tiny-llama", _SEED, display.teaching),
        processing_class=tiny.tokenizer(),
        reward_funcs=[injection.slow(tiny.letter_reward) if injection else tiny.letter_reward, tiny.length_reward],
        args=config(**settings(algorithm, steps, folder)),
        train_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(512)}),
        eval_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(32)}),
        callbacks=[Progress(display), *([injection] if injection else [])],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def settings(algorithm: str, steps: int, folder: Path) -> dict[str, Any]:
    """Of the trainer's configuration."""
    return {
        "output_dir": str(folder / "demo"),
        "max_steps": steps,
        "seed": _SEED,
        "use_cpu": True,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 32,
        "num_generations": 8,
        "num_iterations": 2,
        "max_completion_length": 24,
        "beta": _BETA[algorithm],
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 50,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
    }


class Progress(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Shows each log line."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A line was logged."""
        self._display.step()
