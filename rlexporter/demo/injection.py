"""Injection of a fault into a running trainer. Imports transformers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from math import nan
from typing import Any

from transformers import TrainerCallback

from rlexporter.demo.faults import KINDS, Fault

STALL_SECONDS = 900.0
_SPIKE = 1000.0


class Injection(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Callback that makes the fault happen, once."""

    def __init__(self, fault: Fault, said: Callable[[str], None]) -> None:
        self._fault = fault
        self._say = said
        self._undo: list[Callable[[], None]] = []
        self._stalling = self._done = self._begins = False

    def slow(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """Return ``reward``, wrapped so that it hangs if the fault is a stall."""

        def wrapped(*args: Any, **kwargs: Any) -> list[float]:
            if self._stalling:
                self._stalling = False
                time.sleep(STALL_SECONDS)
            return reward(*args, **kwargs)

        wrapped.__name__ = reward.__name__
        return wrapped

    def before(self, model: Any, optimizer: Any, step: int) -> None:
        """Begin the fault if ``step``, which comes next, is its step, and end it one step later."""
        while self._undo:
            self._undo.pop()()
        if self._done or step != self._fault.step:
            return
        self._done = True
        self._say(f"fault in step {step}: {KINDS[self._fault.kind]}")
        if self._fault.kind == "lr_spike":
            for group in optimizer.param_groups:
                self._undo.append(functools.partial(group.__setitem__, "lr", group["lr"]))
                group["lr"] *= _SPIKE
        elif self._fault.kind == "nan":
            self._undo.append(next(model.parameters()).register_hook(lambda gradient: gradient * nan).remove)
        else:
            self._stalling = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the first step."""
        self.before(kwargs["model"], kwargs["optimizer"], 1)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the step that begins; modern PPO has no such event."""
        self._begins = True
        self.before(kwargs["model"], kwargs["optimizer"], state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the next step if the trainer has no event for its beginning."""
        if not self._begins:
            self.before(kwargs["model"], kwargs["optimizer"], state.global_step + 1)
