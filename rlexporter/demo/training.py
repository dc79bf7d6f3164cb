"""Run of the demo: builds the trainer, attaches the exporter, trains, and shows what was served.

Imports trl and its dependencies; call `rlexporter.demo.quiet` first.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback

from rlexporter.config.arguments import SettingArguments
from rlexporter.demo import tiny, trainers
from rlexporter.demo.faults import STALLED_SECONDS, Fault
from rlexporter.demo.injection import Injection
from rlexporter.display import Display
from rlexporter.exporter import Exporter
from rlexporter.integrations.attach import attach_at

_SEED = 0
_WATCH_SECONDS = 600.0


def run(*, algorithm: str, steps: int, port: int | None, fault: Fault | None, linger: float | None) -> int:
    """Train for ``steps`` steps, and return the exit status.

    The final state is served for at least ``linger`` seconds; by default for ten minutes on a terminal, and elsewhere
    until it was scraped.
    """
    display = Display()
    injection = Injection(fault, display.say, algorithm) if fault else None
    rewards = injection.rewards(summed=algorithm.startswith("ppo")) if injection else [*tiny.REWARDS]
    with tempfile.TemporaryDirectory(prefix="rlexporter-demo-") as folder:
        trainer, train = _built(algorithm, steps, Path(folder), rewards, injection, display)
        name = os.environ.get("RLEXPORTER_RUN") or f"demo-{algorithm}-{os.getpid()}"
        settings: SettingArguments = {"port": port, "run": name, "report": False}
        if fault is not None and fault.kind == "stall" and "RLEXPORTER_THRESHOLDS" not in os.environ:
            settings["thresholds"] = {"run_stalled": STALLED_SECONDS}
        exporter = attach_at(trainer, settings, fallback=port is None)
        display.watch(exporter)
        if hasattr(trainer, "add_callback"):  # after the exporter's own, so that it shows the step that is over
            trainer.add_callback(Progress(display))
        failure = _train(train, exporter, fault)
        display.summary()
        if injection is not None and not injection.begun:
            display.say("the run ended before the fault")
        if failure:
            display.say(f"the fault ended the run: {failure}")
        display.stay(linger if linger is not None else _WATCH_SECONDS if sys.stdout.isatty() else 0.0)
    return 0


def _built(
    algorithm: str, steps: int, folder: Path, rewards: list[Any], injection: Injection | None, display: Display
) -> tuple[Any, Callable[[], object]]:
    """Return the trainer, and the function that trains it."""
    model = tiny.model(folder / "tiny-llama", _SEED, display.teaching)
    if algorithm == "ppo-legacy":
        legacy = trainers.LegacyRun(steps, folder, rewards)
        if injection is not None:
            injection.turn_penalty = lambda: _turn_penalty(legacy.trainer)
        return legacy.trainer, lambda: legacy.train(injection.before if injection else None, display.step)
    if algorithm == "ppo":
        trainer = trainers.of_ppo(steps, folder, model, rewards)
    else:
        trainer = trainers.of_groups(algorithm, steps, folder, model, rewards)
    trainer.remove_callback(PrinterCallback)
    if injection is not None:
        injection.turn_penalty = lambda: _turn_penalty(trainer)
        trainer.add_callback(injection)
    return trainer, trainer.train


def _turn_penalty(trainer: Any) -> None:
    """Give the KL penalty of ``trainer``, of any kind, the wrong sign."""
    if hasattr(trainer, "kl_ctl"):
        trainer.kl_ctl.value *= -1
    elif hasattr(trainer, "beta"):
        trainer.beta *= -1
    else:
        trainer.args.kl_coef *= -1


def _train(train: Callable[[], object], exporter: Exporter, fault: Fault | None) -> str:
    """Train, and return what ended it; an empty text for a good end."""
    gc.collect()
    gc.freeze()  # PPO collects in every step, and torch and TRL leave 400 thousand objects to look at
    try:
        train()
    except KeyboardInterrupt as error:
        exporter.end(error)
        return ""
    except Exception as error:
        exporter.end(error)
        if fault is None:
            raise
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    exporter.end()
    return ""


class Progress(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Callback that shows each log line."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Show the run after a log line."""
        self._display.step()
