"""Which checkpoint is left when a fault has stopped a run: `python -m tests.faults.kept`, in any environment of TRL.

The fault begins at three steps between two saves. The checkpoint that is kept and that the verdict names must be older.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from rlexporter.status.samples import Samples
from rlexporter.status.verdict import verdict
from tests.faults import anywhere
from tests.faults.anywhere import Plant
from tests.faults.planted import HERE
from tests.faults.runs import SEED, Run
from tests.served import errors

EVERY, STEPS = 5, 70
STARTS = (41, 43, 45)
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

    fault: str
    at: int
    stopped: float
    kept: list[str]
    named: str
    errors: float

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints that are kept as good, and of the one that the verdict names."""
        return sorted({int(name.rpartition("-")[2].split("`")[0]) for name in (*self.kept, self.named)})


class Saving(Run):
    """A run that saves a checkpoint every few steps, keeps good ones, and is stopped by what is critical."""

    def attached(self) -> Exporter:
        return rlexporter.attach(self.trainer, port=0, linger=0, on_critical="stop", keep_good=True)

    def over(self) -> bool:
        """Legacy PPO: save as users do; its loop asks if it is to stop."""
        if self.algorithm == "ppo-legacy":
            done = self.step
            if done % EVERY == 0:
                self.trainer.save_pretrained(str(self.folder / f"step_{done}"))
        return self._exporter.should_stop


def left(algorithm: str, folder: Path, fault: str, at: int) -> Left:
    """Train with the ``fault`` from step ``at`` on, with the model in ``folder``; return what is left."""
    with tempfile.TemporaryDirectory() as place:
        options: dict[str, Any] = {}
        if algorithm != "ppo-legacy":
            options = {"output_dir": place, "save_strategy": "steps", "save_steps": EVERY, "save_total_limit": 2}
        run = Saving(algorithm, folder, at=at, steps=STEPS, **options)
        run.folder = Path(place)
        FAULTS[fault](run)
        exporter = run.train()
        now = Samples(exporter.snapshot)
        kept = sorted(path.name for path in Path(place).glob("good-checkpoint-*"))
        named = next((step.text for step in verdict(now, 0.0).steps), "")
        return Left(
            fault, at, now.value("rl_step") or 0.0, kept, exporter.snapshot.good_folder or named, errors(exporter)
        )


def all_left() -> Iterator[tuple[str, Left]]:
    """Yield what is left of every run that this environment can train."""
    with tempfile.TemporaryDirectory() as place:
        tiny.model(Path(place) / "tiny-llama", SEED, lambda done, of: None)
        for algorithm in HERE:
            for fault in FAULTS:
                for at in STARTS:
                    yield algorithm, left(algorithm, Path(place), fault, at)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for algorithm, found in all_left():
        print(algorithm, *found, flush=True)
