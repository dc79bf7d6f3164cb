"""Faults that are planted in live GRPO and RLOO trainers, each from a step on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import TrainerCallback

from tests import tiny

AT = 14
"""The step of the fault: rewards and the like have a past by then."""

Plant = Callable[[Any], None]


def _from(trainer: Any) -> bool:
    """Whether the step under way is that of the fault or a later one."""
    return bool(trainer.state.global_step + 1 >= AT)


def _rewarded(reward: Callable[[Any, list[str]], list[float]]) -> Plant:
    """The first reward function gives ``reward``, which is handed the trainer, in place of the letters."""

    def plant(trainer: Any) -> None:
        def letters(completions: list[str], **_: Any) -> list[float]:
            return reward(trainer, completions)

        trainer.reward_funcs[0] = letters

    return plant


def _outlier(trainer: Any, completions: list[str]) -> list[float]:
    """One reward of one step is far off; it is one of 416 in the run."""
    rewards = tiny.letters(completions)
    if trainer.state.global_step + 1 == AT:
        rewards[3] = 100.0
    return rewards


def _constant(level: float) -> Callable[[Any, list[str]], list[float]]:
    def constant(trainer: Any, completions: list[str]) -> list[float]:
        return [level] * len(completions) if _from(trainer) else tiny.letters(completions)

    return constant


class _Frozen(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        step = optimizer.step
        optimizer.step = lambda *a, **k: step(*a, **k) if state.global_step + 1 < AT else None


def frozen(trainer: Any) -> None:
    """The optimizer does nothing any more; gradients go on."""
    trainer.add_callback(_Frozen())


def _rollout(around: Callable[[Any, Callable[[], Any]], Any]) -> Plant:
    """Call ``around`` with the trainer and what makes a rollout, from the step of the fault on."""

    def plant(trainer: Any) -> None:
        generate = trainer._generate_and_score_completions

        def faulty(*args: Any, **kwargs: Any) -> Any:
            def made() -> Any:
                return generate(*args, **kwargs)

            return around(trainer, made) if _from(trainer) else made()

        trainer._generate_and_score_completions = faulty

    return plant


def _at_temperature(temperature: float) -> Callable[[Any, Callable[[], Any]], Any]:
    def around(trainer: Any, made: Callable[[], Any]) -> Any:
        trainer.generation_config.temperature = temperature
        return made()

    return around


def _without_advantages(trainer: Any, made: Callable[[], Any]) -> Any:
    output = made()
    output["advantages"] = torch.zeros_like(output["advantages"])
    return output


@contextmanager
def _weights(model: Any, weights: dict[str, Any]) -> Iterator[None]:
    now = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
        yield
        for name, parameter in model.named_parameters():
            parameter.copy_(now[name])


def stale(trainer: Any) -> None:
    """The sampler has weights from long ago: of another policy, which is less sure."""
    old = {name: weight * (0.7 if "lm_head" in name else 1.0) for name, weight in trainer.model.state_dict().items()}
    generate = trainer._generate_single_turn

    def faulty(*args: Any, **kwargs: Any) -> Any:
        if not _from(trainer):
            return generate(*args, **kwargs)
        with _weights(trainer.model, old):
            return generate(*args, **kwargs)

    trainer._generate_single_turn = faulty


def dropout(trainer: Any) -> None:
    """The reference has dropout, from the first step on."""
    for module in trainer.ref_model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    trainer.ref_model.train()


@dataclass(frozen=True)
class Fault:
    """``first``, ``last``: the steps between which the condition that names it may begin."""

    plant: Plant
    condition: str
    first: int
    last: int


RUNS: dict[str, tuple[Fault, ...]] = {
    "nothing": (),
    "a reward that is far off, a frozen policy, another temperature": (
        Fault(_rewarded(_outlier), "reward_outlier", AT, AT),
        Fault(frozen, "weights_frozen", AT + 2, AT + 2),
        Fault(_rollout(_at_temperature(0.6)), "sampler_differs", AT, AT + 4),
    ),
    "a reward function constant at its lowest, a stale sampler, advantages without a spread": (
        Fault(_rewarded(_constant(0.0)), "reward_function_dead", AT + 7, AT + 9),
        Fault(stale, "sampler_differs", AT, AT + 4),
        Fault(_rollout(_without_advantages), "advantage_dead", AT, AT),
    ),
    "a reward function constant above its best, a greedy sampler": (
        Fault(_rewarded(_constant(9.0)), "reward_function_dead", AT + 7, AT + 7),
        Fault(_rollout(_at_temperature(0.01)), "sampler_differs", AT, AT + 4),
    ),
    "a reward function that is constant, dropout in the reference": (
        Fault(_rewarded(_constant(0.5)), "reward_function_dead", AT + 7, AT + 7),
        Fault(dropout, "reference_noisy", 2, 10),
    ),
}
"""Faults that are planted in one run, since none of them can be the reason of the condition of another."""

NAN, STEEP, FLAT, STILL = 13, 23, 27, 33
"""The steps in which the faults of `shown` begin, in the middle of windows of log lines."""


class _Shown(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    def on_step_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, lr_scheduler: Any = None, **kwargs: Any
    ) -> None:
        if state.global_step + 1 == STEEP:
            model.lm_head.weight.register_hook(lambda gradient: gradient * 1e4)
        if state.global_step + 2 == STILL:  # a scheduler sets the rate of the step that comes next
            lr_scheduler.base_lrs = [0.0] * len(lr_scheduler.base_lrs)


def shown(trainer: Any) -> None:
    """A reward is NaN, once; gradients are ten thousand times too large; a reward is constant; the learning rate is 0.

    Without a fault the reward function hardly ever gives the same twice.
    """

    def letters(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        step = trainer_state.global_step + 1
        if step >= FLAT:
            return [-1.0] * len(completions)
        rewards = [each + 0.01 * len(text) for each, text in zip(tiny.letters(completions), completions, strict=True)]
        return [math.nan, *rewards[1:]] if step == NAN else rewards

    trainer.reward_funcs[0] = letters
    trainer.add_callback(_Shown())
