"""A real GRPO training whose rewards, disk and folder are whatever comes to mind, for test_attacks.py.

    python -m tests.e2e.attacked_training PORT SEED HOW FOLDER ADDRESSES

HOW it ends: `finish`, `raise`, `stop` or `signal`. It ends once there is a file FOLDER/end. It is asked to save and to
stop, keeps good checkpoints, and sends messages to ADDRESSES. FOLDER/told.json then has what has raised, its last step,
the errors that were counted, and the memory of a quarter of its time and of the end, in bytes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from math import inf, nan
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import rlexporter
from tests import tiny
from tests.e2e.attacked import memory


class EndedError(Exception):
    """What ends the training where it is to end so."""


class Meddler(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does what users, uploaders and other programs do in a folder of checkpoints; ends the training in the end."""

    def __init__(self, rng: random.Random, how: str, end: Path) -> None:
        self.rng, self.how, self.end = rng, how, end
        self.memories: list[int] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        assert (folder / "trainer_state.json").is_file()
        if self.rng.random() < 0.1:
            shutil.rmtree(folder)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if len(self.memories) < 100_000:
            self.memories.append(memory())
        if self.rng.random() < 0.05:
            self._meddle(Path(args.output_dir))
        if self.end.exists():
            if self.how == "raise":
                raise EndedError
            if self.how == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            control.should_training_stop = True

    def _meddle(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        ours = [path for path in folder.iterdir() if path.name.startswith(("good-", "suspect-", "."))]
        act = self.rng.choice(["add", "mkdir", "link", "pipe", "clear"])
        name = f"{self.rng.choice(['good', 'suspect'])}-checkpoint-{self.rng.randrange(1, 200)}"
        if act == "add" and ours and (path := self.rng.choice(ours)).is_dir():
            (path / "mine.txt").write_text("mine")
        elif act == "clear":
            for path in ours:
                if path.name.startswith("suspect-") and path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
        elif act != "add" and not os.path.lexists(folder / name):
            {"mkdir": os.mkdir, "link": lambda path: os.symlink("/dev/zero", path), "pipe": os.mkfifo}[act](
                folder / name
            )


def _reward(rng: random.Random) -> Any:
    wild = (nan, inf, -inf, 1e30, -1e6, 0.0)

    def reward(completions: list[str], **_: Any) -> list[float | None]:
        values: list[float | None] = [float(len(text)) for text in completions]
        if rng.random() < 0.1:
            values[rng.randrange(len(values))] = rng.choice([*wild, None])
        return values

    return reward


def _asks(rng: random.Random) -> Any:
    def act(incident: Any) -> Any:
        return rng.choice([None, "save", "save", 7, "halt", 1 / rng.randrange(2)])

    return rng.choice(["save", act, act])


def main(port: str, seed: str, how: str, folder: str, addresses: str) -> None:
    """Train, and end."""
    torch.set_num_threads(1)
    rng, end, told = random.Random(int(seed)), Path(folder) / "end", Path(folder) / "told.json"
    trainer = tiny.grpo(
        Path(folder),
        rewards=[_reward(rng)],
        max_steps=10**6,
        save_strategy="steps",
        save_steps=rng.choice([1, 2, 5]),
        save_total_limit=rng.choice([None, 1, 3]),
        learning_rate=0.0,
    )
    meddler = Meddler(rng, how, end)
    trainer.callback_handler.callbacks.insert(rng.choice([0, 99]), meddler)
    settings: dict[str, Any] = {
        "on_critical": _asks(rng),
        "keep_good": True,
        "notify": addresses,
        "run": f"life-{seed}",
    }
    exporter = rlexporter.attach(trainer, port=int(port), **settings)
    raised = ""

    def tell() -> None:
        found = exporter.snapshot.samples.items()
        errors = {
            series.labels[0]: value for series, value in found if series.metric.series == "rlexporter_errors_total"
        }
        grown = memory() - meddler.memories[len(meddler.memories) // 4]
        had = {"raised": raised, "step": trainer.state.global_step, "errors": errors, "grown": grown}
        told.write_text(json.dumps(had))

    def leave() -> None:
        tell()
        sys.exit(0)

    if how == "signal":
        signal.signal(signal.SIGTERM, lambda *_: leave())
    try:
        trainer.train()
    except EndedError:
        tell()
        raise
    except BaseException as error:
        raised = repr(error)
        tell()
        raise
    tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
