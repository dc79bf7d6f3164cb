"""Which checkpoint is left when a fault has stopped a run: `python -m tests.faults.kept`, in any environment of TRL.

    torchrun --nproc-per-node 2 -m tests.faults.kept FOLDER

The fault begins at three steps between two saves. The checkpoints that are kept, and the one that is named, must be
older. FOLDER keeps the model that is trained, and what the runs leave; `python -m tests.faults.kept FOLDER` makes it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from tests.faults import anywhere
from tests.faults.anywhere import Plant
from tests.faults.planted import HERE
from tests.faults.runs import SEED, Run
from tests.served import errors

EVERY, STEPS = 5, 70
STARTS = (41, 43, 45)
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
_END = 1


def endless(run: Run) -> None:
    """Completions never end: whatever samples them leaves out the end token."""
    if run.algorithm == "ppo-legacy":
        run.begin(lambda: run.sampling.update(suppress_tokens=[_END]))
        return

    def generate(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        kwargs["generation_config"].suppress_tokens = [_END]
        return method(*args, **kwargs)

    run.around(run.policy, "generate", generate)


FAULTS: dict[str, Plant] = {"rewards change their sign": anywhere.scaled(-1), "completions never end": endless}


class Left(NamedTuple):
    """What is left of a run."""

    algorithm: str
    fault: str
    at: int
    ended: float
    """Its last step."""
    kept: list[str]
    named: str
    """The checkpoint to resume from; empty if none is named."""
    errors: float

    @property
    def late(self) -> list[str]:
        """The checkpoints that were written after the fault began, of those that are kept or named."""
        return [name for name in (*self.kept, self.named) if name and int(re.findall(r"\d+", name)[0]) >= self.at]


class Saving(Run):
    """A run that saves a checkpoint every few steps, keeps good ones, and is stopped by what is critical."""

    out = Path()

    def attached(self) -> Exporter:
        return rlexporter.attach(self.trainer, port=0, linger=0, on_critical="stop", keep_good=True)

    def over(self) -> bool:
        """Legacy PPO: save as users do; the loop asks if it is to stop."""
        if self.step % EVERY == 0 and RANK == 0:
            self.trainer.save_pretrained(str(self.out / f"step_{self.step}"))
        return self._exporter.should_stop


def left(algorithm: str, folder: Path, fault: str, at: int) -> Left:
    """Train with the ``fault`` from step ``at`` on, with the model in ``folder``; return what is left."""
    out = folder / f"{algorithm} {fault} {at} {RANKS}"
    options: dict[str, Any] = {}
    if algorithm != "ppo-legacy":
        options = {"output_dir": str(out), "save_strategy": "steps", "save_steps": EVERY, "save_total_limit": 2}
    if RANKS > 1 and algorithm != "ppo-legacy":
        options |= {"ddp_backend": "gloo", "per_device_train_batch_size": 16}
    if RANKS > 1 and algorithm == "ppo":
        options |= {"save_strategy": "no"}  # TRL itself cannot save it then
    run = Saving(algorithm, folder, at=at, steps=STEPS, **options)
    run.out = out
    FAULTS[fault](run)
    exporter = run.train()
    kept = sorted(path.name for path in out.glob("good-checkpoint-*"))
    ended = exporter.snapshot.value("rl_step") or 0.0
    return Left(algorithm, fault, at, ended, kept, exporter.snapshot.good_folder, errors(exporter))


def all_left(folder: Path) -> Iterator[Left]:
    """Yield what is left of every run that this environment can train, in ``folder``."""
    if not (folder / "tiny-llama").is_dir():
        tiny.model(folder / "tiny-llama", SEED, lambda done, of: None)
    for algorithm in HERE:
        for fault in FAULTS:
            for at in STARTS:
                yield left(algorithm, folder, fault, at)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        for found in all_left(Path(sys.argv[1] if len(sys.argv) > 1 else made)):
            if RANK == 0:
                print(f"left: {found.late or 'older than the fault'}: {found}", flush=True)
