"""A real GRPO training as a process of its own, for tests that end it in some way.

    python -m tests.e2e.training FOLDER PORT HOW [--seconds N] [--resume] [--fault KIND] [--stalled SECONDS] ...

HOW: what happens when `--seconds` are over: `end` (enough steps), `raise`, `exit` (sys.exit in a reward function),
`wait` (goes on until a signal comes), `caught` (as wait, inside `try: ... except KeyboardInterrupt`). Each log line
goes to FOLDER/log.jsonl, with its step. While there is a file FOLDER/hold, it waits between two steps, and says so by
FOLDER/held. KIND is one of `KINDS`: it begins in the first step after the file FOLDER/fault is there, and lasts as long
as it is; each step in which it did something is a line of FOLDER/faults.jsonl, with the time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import rlexporter
from rlexporter.demo import quiet
from tests import tiny
from tests.e2e.runs import GIL_SECONDS

KINDS = {
    "": "nothing goes wrong",
    "ratio": "in one update that reuses samples, the policy has learned those samples by heart; then it is as before",
    "reward": "a reward of each step is NaN",
    "hang": "the reward function does not return",
    "start": "the training hangs before its first step, whether there is a file or not",
    "gil": "the reward function holds the GIL once",
    "end": "the training ends as it should",
}
_FOREVER = 10_000


class Fault(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """The fault of one training."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._asked = folder / "fault"
        self._file = folder / "faults.jsonl"
        self._step = 0
        self._done = False
        self._sampled: list[list[int]] = []
        self._undo: Callable[[], None] = lambda: None

    def rewards(self, rewards: list[float], prompt_and_completion_ids: list[list[int]]) -> list[float]:
        """What the reward function returns, if it does."""
        self._sampled = prompt_and_completion_ids
        if self._kind == "hang" and self._begins():
            time.sleep(_FOREVER)
        if self._kind == "gil" and self._begins():
            ctypes.PyDLL(None).sleep(GIL_SECONDS)
            self._note()
        if self._kind == "reward" and self._asked.exists():
            self._note()
            return [nan, *rewards[1:]]
        return rewards

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step = state.global_step + 1
        if self._kind == "start":
            self._note()
            time.sleep(_FOREVER)
        reuses_samples = self._step % args.num_iterations != 1
        if self._kind == "ratio" and reuses_samples and self._begins():
            self._undo = learn_by_heart(kwargs["model"], self._sampled)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._undo()
        if self._kind == "end" and self._begins():
            control.should_training_stop = True

    def _begins(self) -> bool:
        """Once."""
        if self._done or not self._asked.exists():
            return False
        self._done = True
        self._note()
        return True

    def _note(self) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps({"step": self._step, "time": time.time()}) + "\n")


def learn_by_heart(model: Any, rows: list[list[int]]) -> Callable[[], None]:
    """Fit the model to these tokens; returns what makes it as it was."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        for row in rows:
            ids = torch.tensor([row])
            model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    optimizer.zero_grad()

    def undo() -> None:
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), tuple(before), strict=False):
                parameter.copy_(value)
        before.clear()

    return undo


FEWEST_STEPS = 6
"""Steps that are made in any case: a busy machine may need all of the time for the first one."""


class Journal(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Keeps what was logged, and ends the training when its time is over."""

    def __init__(self, file: Path, until: float) -> None:
        self._file = file
        self._until = until

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "reward" in logs:
            with self._file.open("a") as out:
                out.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        control.should_training_stop |= state.global_step > FEWEST_STEPS and time.monotonic() > self._until


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("how", choices=["end", "raise", "exit", "wait", "caught"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--fault", default="", choices=KINDS)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.2)
    parser.add_argument("--stalled", type=float)
    parser.add_argument("--labels")
    options = parser.parse_args()
    quiet()
    options.folder.mkdir(parents=True, exist_ok=True)
    over = time.monotonic() + options.seconds
    forever = options.how in ("wait", "caught")

    fault = Fault(options.fault, options.folder)
    calls: list[float] = []

    def paced(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        time.sleep(options.pace)
        calls.append(time.monotonic())
        while (options.folder / "hold").exists():
            (options.folder / "held").touch()
            time.sleep(1)
        if options.how != "end" and not forever and len(calls) > FEWEST_STEPS and calls[-1] > over:
            sys.exit(3) if options.how == "exit" else _raise()
        asked = trainer.processing_class(prompts)["input_ids"]
        sampled = [[*prompt, *answer] for prompt, answer in zip(asked, completion_ids, strict=True)]
        return fault.rewards(_varied(completions), sampled)

    trainer = tiny.grpo(
        options.folder,
        rewards=[paced],
        max_steps=100_000,
        save_strategy="steps",
        save_steps=5,
        num_iterations=options.iterations,
        callbacks=[Journal(options.folder / "log.jsonl", over if options.how == "end" else float("inf")), fault],
    )
    thresholds = {"run_stalled": options.stalled} if options.stalled else None
    exporter = rlexporter.attach(trainer, port=options.port, labels=options.labels, thresholds=thresholds)
    print(exporter.name, flush=True)
    try:
        trainer.train(resume_from_checkpoint=True if options.resume else None)
    except KeyboardInterrupt:
        if options.how != "caught":
            raise
        print("caught", flush=True)


def _varied(completions: list[str]) -> list[float]:
    """Hardly ever the same for two completions: a run whose rewards do not differ is sick."""
    return [sum(map(ord, text)) / 100 for text in completions]


def _raise() -> None:
    raise ValueError("the verifier is down")


if __name__ == "__main__":
    main()
