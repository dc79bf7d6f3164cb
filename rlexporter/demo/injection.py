"""Injection of a fault into a running trainer. Imports transformers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from math import nan
from typing import Any

import torch
from transformers import TrainerCallback

from rlexporter.demo import tiny
from rlexporter.demo.faults import KINDS, Fault

STALL_SECONDS = 900.0
_SPIKE = 1000.0
_DRIFTS = {"reward_hacking": ("e", 0.12, 4.0), "length_collapse": (tiny.END, 2.0, 60.0)}
"""By fault, the token that the policy drifts to, how much its logit rises in each step, and how far at most. It stands
in for the hundreds of steps in which a policy learns such a thing."""
_PACE = {("ppo", "length_collapse"): 0.4}
"""By algorithm and fault, a factor on the drift: at full pace the value loss of PPO would spike first."""
_ROLLOUTS = {"grpo": 2, "rloo": 2}
"""By algorithm, the number of steps that train on a rollout. The drift waits for the next rollout: it stands in for
what was learned before, and must not move the policy off its own samples."""
_OF_REWARDS = ("nan_reward", "dead_reward", "stall")
"""The faults that happen when training next computes rewards, which may be a step later."""
Reward = Callable[..., list[float]]


class Injection(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Makes the fault happen, once or from its step on. The training thread calls everything here."""

    def __init__(self, fault: Fault, said: Callable[[str], None], algorithm: str) -> None:
        self.turn_penalty: Callable[[], None] = lambda: None
        """Gives the KL penalty of the trainer the wrong sign; set when the trainer is built."""
        self._fault = fault
        self._say = said
        self._undo: list[Callable[[], None]] = []
        self._bias: torch.Tensor | None = None
        self._pace = _PACE.get((algorithm, fault.kind), 1.0)
        self._rollout = _ROLLOUTS.get(algorithm, 1)
        self._step = 0
        self.begun = self._due = self._begins = self._happened = False
        self._between = False
        """True between two steps, when an evaluation may compute rewards too."""

    def rewards(self, *, summed: bool) -> list[Reward]:
        """Return the demo's reward functions, with the fault if it is one of rewards.

        ``summed``: the trainer sees only their sum, so that `dead_reward` has to hit all of them.
        """
        length = self._in(tiny.length_reward, self._dead) if summed else tiny.length_reward
        return [self._in(tiny.letter_reward, self._letters), length]

    def before(self, model: Any, optimizer: Any, step: int) -> None:
        """Begin the fault if its step is ``step``, which comes next; a short fault ends one step later."""
        self._step, self._between = step, False
        while self._undo:
            self._undo.pop()()
        if self._bias is not None:
            token, per_step, most = _DRIFTS[self._fault.kind]
            drifted = max(step - (step - 1) % self._rollout - self._fault.step, 0)
            self._bias[tiny.token(token)] = min(per_step * self._pace * drifted, most)
        if self._due or step < self._fault.step:
            return
        self._due = True
        if self._fault.kind not in _OF_REWARDS:
            self._begin()
        if self._fault.kind == "lr_spike":
            for group in optimizer.param_groups:
                self._undo.append(functools.partial(group.__setitem__, "lr", group["lr"]))
                group["lr"] *= _SPIKE
        elif self._fault.kind == "nan":
            self._undo.append(next(model.parameters()).register_hook(lambda gradient: gradient * nan).remove)
        elif self._fault.kind in _DRIFTS:
            # A bias of the last layer raises the logit of a token, in sampling and in training.
            policy = getattr(model, "policy", None) or getattr(model, "pretrained_model", model)
            head = policy.get_output_embeddings()
            head.bias = torch.nn.Parameter(torch.zeros(head.out_features), requires_grad=False)
            self._bias = head.bias
        elif self._fault.kind == "kl_runaway":
            self.turn_penalty()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the first step."""
        self.before(kwargs["model"], kwargs["optimizer"], 1)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the step that begins; modern PPO has no such event."""
        self._begins = True
        self.before(kwargs["model"], kwargs["optimizer"], state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the next step if the trainer has no event for the beginning of one."""
        self._between = self._begins
        if not self._begins:
            self.before(kwargs["model"], kwargs["optimizer"], state.global_step + 1)

    def _begin(self) -> None:
        self.begun = True
        self._say(f"fault in step {self._step}: {KINDS[self._fault.kind]}")

    def _in(self, reward: Reward, fault: Callable[[list[float], dict[str, Any]], list[float]]) -> Reward:
        """Return ``reward`` under its own name, but with its values changed by ``fault`` once that has begun."""

        @functools.wraps(reward)
        def wrapped(**batch: Any) -> list[float]:
            values = reward(**batch)
            if self._due and not self.begun and not self._between:
                self._begin()
            return fault(values, batch) if self.begun else values

        return wrapped

    def _letters(self, values: list[float], batch: dict[str, Any]) -> list[float]:
        kind = self._fault.kind
        if kind == "reward_hacking":
            return [text.count("e") / 3 for text in batch["completions"]]
        if kind == "dead_reward":
            return self._dead(values, batch)
        if self._happened or kind not in ("nan_reward", "stall"):
            return values
        self._happened = True
        if kind == "stall":
            time.sleep(STALL_SECONDS)
            return values
        return [nan, *values[1:]]

    def _dead(self, values: list[float], batch: dict[str, Any]) -> list[float]:
        return [0.0] * len(values) if self._fault.kind == "dead_reward" else values
