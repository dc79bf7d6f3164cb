"""A real GRPO training of several ranks on the CPU (gloo), started by a launcher; what each rank saw goes to files.

    torchrun --nproc-per-node 2 -m tests.e2e.ranks FOLDER PORT
        [--nan-on RANK] [--fail-on RANK] [--hang-on RANK] [--wait]
        [--on-critical WORDS] [--callback] [--steps N] [--save-steps N] [--resume]

FOLDER/seen-RANK.json: rewards and lengths, counted without rlexporter; collectives that rlexporter called itself; the
steps that began, that of the NaN, and the last; a digest of the weights; how the training ended.
FOLDER/started-RANK.json: process of a rank.
FOLDER/failed-RANK.json: process and time of a rank that raised, once FOLDER/fail was there; in its first attempt only.
FOLDER/hangs-RANK.json: process of a rank whose reward function hangs, from its third call until FOLDER/go is there.
With `--wait` the training goes on until FOLDER/enough is there. With `--callback` the trainer is given a callback, and
nothing is attached.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from math import nan
from pathlib import Path
from typing import Any

import torch.distributed
from transformers import TrainerCallback

import rlexporter
from rlexporter.demo import quiet
from tests import tiny

RANK = int(os.environ["RANK"])
PACKAGE = Path(rlexporter.__file__).parent
"""A checkout may have the same name."""
FAULTY_CALL = 3
"""Which call of the reward function is the one of the NaN."""


class Enough(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Stops all ranks in the same step: rank 0 looks, and the others hear of it by the loop of the test."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        seen = torch.tensor(float(RANK == 0 and self._file.exists()))
        torch.distributed.all_reduce(seen)
        control.should_training_stop |= bool(seen)


class Steps(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Notes which steps began, and that the training ended."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ends = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began.append(state.global_step + 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends += 1


WATCHED = (
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "broadcast",
    "broadcast_object_list",
    "barrier",
    "new_group",
)


def own_collectives() -> list[str]:
    """Collectives whose caller is a file of the package, as they come."""
    found: list[str] = []
    for name in WATCHED:
        original = getattr(torch.distributed, name)

        def watched(*args: Any, _name: str = name, _call: Any = original, **kwargs: Any) -> Any:
            if PACKAGE in Path(sys._getframe(1).f_code.co_filename).parents:
                found.append(_name)
            return _call(*args, **kwargs)

        setattr(torch.distributed, name, watched)
    return found


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--nan-on", type=int, default=-1)
    parser.add_argument("--fail-on", type=int, default=-1)
    parser.add_argument("--hang-on", type=int, default=-1)
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--on-critical", default="")
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    quiet()
    collectives = own_collectives()
    rewards: list[float] = []
    lengths: list[int] = []
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    calls = nan_step = 0
    steps = Steps()

    def scored(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        nonlocal calls, nan_step
        calls += 1
        time.sleep(0.1 * (1 + RANK))
        found = [sum(map(ord, text)) / 100 - 2 + RANK for text in completions]
        if options.fail_on == RANK and first_attempt and (options.folder / "fail").exists():
            (options.folder / f"failed-{RANK}.json").write_text(json.dumps({"pid": os.getpid(), "time": time.time()}))
            raise ValueError("the verifier of this rank is down")
        if calls == FAULTY_CALL and options.hang_on == RANK:
            (options.folder / f"hangs-{RANK}.json").write_text(json.dumps({"pid": os.getpid()}))
            while not (options.folder / "go").exists():
                time.sleep(0.1)
        if calls == FAULTY_CALL and options.nan_on == RANK:
            found[0], nan_step = nan, steps.began[-1]
        rewards.extend(found)
        lengths.extend(map(len, completion_ids))
        return found

    settings: Any = {"port": options.port, "on_critical": options.on_critical}
    callbacks = [steps, *([Enough(options.folder / "enough")] if options.wait else [])]
    ours = rlexporter.RLExporterCallback(**settings) if options.callback else None
    saves = {"save_strategy": "steps", "save_steps": options.save_steps} if options.save_steps else {}
    trainer = tiny.grpo(
        options.folder / str(RANK),
        rewards=[scored],
        max_steps=options.steps,
        num_iterations=2,
        callbacks=[*callbacks, ours] if ours else callbacks,
        **saves,
    )
    trainer.args.output_dir = str(options.folder / "trained")
    exporter = None if ours else rlexporter.attach(trainer, **settings)
    if exporter:
        print(json.dumps({"rank": RANK, "run": exporter.name, "url": exporter.url}), flush=True)
    (options.folder / f"started-{RANK}.json").write_text(json.dumps({"pid": os.getpid()}))
    trainer.train(resume_from_checkpoint=options.resume or None)
    seen: dict[str, Any] = {"rewards": rewards, "lengths": lengths, "collectives": collectives}
    weights = b"".join(each.detach().numpy().tobytes() for each in trainer.model.parameters())
    seen |= {"weights": hashlib.sha256(weights).hexdigest(), "step": trainer.state.global_step, "nan_step": nan_step}
    seen |= {"began": steps.began, "ends": steps.ends}
    exporter = ours.exporter if ours else exporter
    if exporter:
        on = {series.metric.series: series.labels for series, value in exporter.snapshot.samples.items() if value == 1}
        seen |= {
            "should_stop": exporter.should_stop,
            "state": on["rl_run_state"],
            "by": on.get("rl_run_exception_info"),
        }
    (options.folder / f"seen-{RANK}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
