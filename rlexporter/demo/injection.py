"""Makes a fault happen in a running trainer. Imports transformers."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import nan
from typing import Any

from transformers import TrainerCallback

from rlexporter.demo.faults import KINDS, Fault

STALL_SECONDS = 900.0
_SPIKE = 1000.0


class Injection(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Makes the fault happen. ``rewards``: the reward functions, of which a stall wraps the first."""

    def __init__(self, fault: Fault, said: Callable[[str], None]) -> None:
        self._fault = fault
        self._say = said
        self._hooks: list[Any] = []
        self._stalling = False

    def slow(self, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
        """The reward function, which hangs where the fault is a stall."""

        def wrapped(*args: Any, **kwargs: Any) -> list[float]:
            if self._stalling:
                self._stalling = False
                time.sleep(STALL_SECONDS)
            return reward(*args, **kwargs)

        wrapped.__name__ = reward.__name__
        return wrapped

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the step with the fault."""
        if state.global_step + 1 != self._fault.step:
            return
        self._say(f"fault in step {self._fault.step}: {KINDS[self._fault.kind]}")
        if self._fault.kind == "lr_spike":
            for group in kwargs["optimizer"].param_groups:
                group["lr"] *= _SPIKE
        elif self._fault.kind == "nan":
            weight = next(kwargs["model"].parameters())
            self._hooks.append(weight.register_hook(lambda gradient: gradient * nan))
        else:
            self._stalling = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A fault lasts one step."""
        while self._hooks:
            self._hooks.pop().remove()
