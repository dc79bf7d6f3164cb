"""A real GRPO training whose rewards, disk and folder are whatever comes to mind, for test_attacks.py.

    python -m tests.e2e.attacked_training PORT SEED HOW FOLDER ADDRESSES

HOW it ends: `stop`, `raise` or `signal`. It ends once there is a file FOLDER/end. It is asked to save, keeps good
checkpoints, and sends messages to ADDRESSES. FOLDER/told.json then has what has raised, its last step, the places of
the errors that were counted, how many bytes its memory has grown since a quarter of its time, and how many folders and
files of others were put among ours, and are no longer there.
"""

from __future__ import annotations

import contextlib
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
from rlexporter.adapters.folders import MARK
from tests import tiny
from tests.e2e.attacked import memory


class EndedError(Exception):
    """What ends the training where it is to end so."""


class Meddler(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Does what users, uploaders and other programs do in a folder of checkpoints; ends the training in the end."""

    def __init__(self, rng: random.Random, how: str, end: Path) -> None:
        self.rng, self.how, self.end = rng, how, end
        self.memories: list[int] = []
        self.theirs: set[int] = set()
        """The numbers (inodes) of what others have put among ours. It stays the same when a folder is renamed."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        assert (folder / "trainer_state.json").is_file()
        if self.rng.random() < 0.1:
            shutil.rmtree(folder)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if len(self.memories) < 100_000:
            self.memories.append(memory())
        if self.rng.random() < 0.05:
            with contextlib.suppress(FileNotFoundError):  # a folder of ours has just gone
                self._meddle(Path(args.output_dir))
        if self.end.exists():
            if self.how == "raise":
                raise EndedError
            if self.how == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            control.should_training_stop = True

    def lost(self, folder: Path) -> int:
        """Return how many of the things of others are no longer in ``folder``, or in a folder there."""
        return len(self.theirs - {path.lstat().st_ino for path in folder.rglob("*")})

    def _meddle(self, folder: Path) -> None:
        act = self.rng.choice(["add", "mkdir", "link", "pipe", "clear"])
        ours = [path for path in folder.glob("*-checkpoint-*") if path.is_dir() and not path.is_symlink()]
        new = folder / f"{self.rng.choice(['good', 'suspect'])}-checkpoint-{self.rng.randrange(1, 200)}"
        if act == "clear":
            for path in ours:
                if path.name.startswith("suspect-") and (path / MARK).exists() and not (path / "mine.txt").exists():
                    shutil.rmtree(path)
            return
        if act == "add" and ours:
            new = self.rng.choice(ours) / "mine.txt"
            new.write_text("mine")
        elif act != "add" and not os.path.lexists(new):
            {"mkdir": os.mkdir, "link": lambda path: os.symlink("/dev/zero", path), "pipe": os.mkfifo}[act](new)
        else:
            return
        self.theirs.add(new.lstat().st_ino)


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
        "thresholds": "weights_frozen=off",  # they are, so that no reward breaks them
        "notify": addresses,
        "run": f"life-{seed}",
    }
    exporter = rlexporter.attach(trainer, port=int(port), **settings)
    raised = ""

    def tell() -> None:
        found = exporter.snapshot.samples.items()
        places = [
            series.labels[0] for series, value in found if series.metric.series == "rlexporter_errors_total" and value
        ]
        grown = memory() - meddler.memories[len(meddler.memories) // 4]
        lost = meddler.lost(Path(trainer.args.output_dir))
        step = trainer.state.global_step
        told.write_text(json.dumps({"raised": raised, "step": step, "errors": places, "grown": grown, "lost": lost}))

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
    except Exception as error:
        raised = repr(error)
        tell()
        raise
    tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
