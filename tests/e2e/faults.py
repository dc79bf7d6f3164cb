"""What goes wrong in a training of `tests.e2e.training`, when the test says so.

A fault begins in the first step after the file FOLDER/fault is there, and lasts as long as it is; each step in which
it did something is a line of FOLDER/faults.jsonl, with the time.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

KINDS = {
    "": "nothing goes wrong",
    "ratio": "in one update that reuses samples, the policy has learnt those samples by heart; then it is as before",
    "reward": "a reward of each step is NaN",
    "hang": "the reward function does not return",
    "start": "the training hangs before its first step, whether there is a file or not",
    "gil": "the reward function holds the GIL once",
    "end": "the training ends as it should",
}
GIL_SECONDS = 6
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
