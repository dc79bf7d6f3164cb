"""What goes wrong in any trainer: rewards, weights, and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.faults.runs import Run, copy

Plant = Callable[[Run], object]
"""Plants a fault in a run that has not begun."""
Change = Callable[[Sequence[str], Sequence[float]], list[Any]]
"""Changes rewards, given the prompts."""


def rewarded(change: Change, *, which: int | None = None, once: bool = False) -> Plant:
    """All reward functions, or ``which``, give something else, ``once`` or from the fault on."""

    def plant(run: Run) -> None:
        def changed(function: Callable[..., list[float]]) -> Callable[..., list[float]]:
            def reward(prompts: list[str], completions: list[str]) -> list[float]:
                rewards = function(prompts=prompts, completions=completions)
                wrong = run.step == run.at if once else run.faulty
                return change(prompts, rewards) if wrong else rewards

            return reward

        run.functions = [
            changed(function) if which in (None, place) else function for place, function in enumerate(run.functions)
        ]

    return plant


def one_is(value: float) -> Plant:
    """One reward of one step."""
    return rewarded(lambda prompts, rewards: [value, *rewards[1:]], which=0, once=True)


def scaled(factor: float, which: int | None = None) -> Plant:
    """Rewards are multiplied."""
    return rewarded(lambda prompts, rewards: [factor * reward for reward in rewards], which=which)


def constant(value: float) -> Plant:
    """The first function always gives the same."""
    return rewarded(lambda prompts, rewards: [value] * len(rewards), which=0)


silent = rewarded(lambda prompts, rewards: [None] * len(rewards))
"""All functions return None, as where a judge does not answer."""
zeroed = rewarded(lambda prompts, rewards: [0.0 if i % 5 == 2 else reward for i, reward in enumerate(rewards)])
"""One reward in five is 0, of all functions, as of a sandbox that runs out of time."""
of_one_prompt = rewarded(lambda prompts, rewards: [_score(prompt) for prompt in prompts], which=0)
"""The first function reads the prompt in place of the completion."""
of_prompts = rewarded(lambda prompts, rewards: [_score(prompt) for prompt in prompts])


def _score(prompt: str) -> float:
    return sum(map(ord, prompt)) % 7 / 7


def replaced(run: Run) -> None:
    """The first weights come back, as of a checkpoint that was loaded."""
    first = copy(run.policy)
    run.begin(lambda: run.policy.load_state_dict(first))


def thrown(run: Run) -> None:
    """The weights are thrown far away for one update, and come back after it."""
    usual: dict[str, Any] = {}

    def throw() -> None:
        usual.update(copy(run.policy))
        weight = run.policy.lm_head.weight
        with torch.no_grad():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))

    run.begin(throw)
    run.when(run.at + 1, lambda: run.policy.load_state_dict(usual))


def idle(run: Run) -> None:
    """The optimizer does nothing any more; gradients go on."""
    run.begin(lambda: setattr(run.optimizer, "step", lambda *args, **kwargs: None))


def nan_weight(run: Run) -> None:
    """One weight is NaN after the step of the fault, before the next rollout."""
    run.when(run.at + 1, lambda: run.policy.lm_head.weight.view(-1)[:1].fill_(math.nan))


def forgotten(run: Run) -> None:
    """The optimizer loses its moments."""
    run.begin(lambda: run.optimizer.state.clear())


def decaying(run: Run) -> None:
    """The weights decay by some percent a step."""

    def decay() -> None:
        for group in run.optimizer.param_groups:
            group["weight_decay"] = 100.0

    run.begin(decay)


def lost(of: Callable[[Any], Any]) -> Plant:
    """The optimizer loses the parameters of a part of the model."""

    def plant(run: Run) -> None:
        def lose() -> None:
            gone = {id(parameter) for parameter in of(run.trainer.model).parameters()}
            for group in run.optimizer.param_groups:
                group["params"] = [each for each in group["params"] if id(each) not in gone]

        run.begin(lose)

    return plant


def whole(model: Any) -> Any:
    """All of a model."""
    return model


def layer(model: Any) -> Any:
    """The first layer of a Llama."""
    return model.model.layers[0]


def frozen(run: Run) -> None:
    """A layer is trained no longer."""
    run.begin(lambda: layer(run.policy).requires_grad_(False))


def half_without_gradient(run: Run) -> None:
    """The gradients of every second tensor are 0."""

    def zero() -> None:
        for parameter in [*run.policy.parameters()][::2]:
            parameter.register_hook(torch.zeros_like)

    run.begin(zero)


def reference_follows(share: float) -> Plant:
    """The reference goes a ``share`` of the way to the policy, each step."""

    def plant(run: Run) -> None:
        def follow() -> None:
            pairs = zip(run.trainer.ref_model.parameters(), run.trainer.model.parameters(), strict=True)
            for reference, policy in pairs:
                reference.lerp_(policy, share)

        run.each(follow)

    return plant
