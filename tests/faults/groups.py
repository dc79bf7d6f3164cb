"""What goes wrong in GRPO and RLOO, trainers of groups of completions, and in no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlexporter.demo import tiny
from tests.faults.anywhere import Plant
from tests.faults.runs import BATCH, GROUP, Run, copy, weights

_END = tiny.token(tiny.END)
Tokens = list[list[int]]


# Prompts


def stuck(run: Run) -> None:
    """The data loader returns the same batch."""
    prepare = run.trainer._prepare_inputs
    kept: list[Any] = []

    def again(batch: Any) -> Any:
        if not run.faulty:
            kept[:] = [batch]
        return prepare(*kept)

    run.trainer._prepare_inputs = again


def contentless(run: Run) -> None:
    """Prompts lose all but their end."""

    def cut(prepare: Callable[..., Any], batch: Any) -> Any:
        return prepare([{**sample, "prompt": ":"} for sample in batch])

    run.around(run.trainer, "_prepare_inputs", cut)


def retemplated(run: Run) -> None:
    """Another chat template, with another end."""

    def tokenize(method: Callable[..., Any], prompts: list[str]) -> Any:
        return method([f"ask {prompt} so " for prompt in prompts])

    run.around(run.trainer, "_tokenize_prompts", tokenize)


# Completions


def _sampled(change: Callable[[Tokens], Tokens]) -> Plant:
    def plant(run: Run) -> None:
        def sample(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            completions, *more = method(*args, **kwargs)
            return change(completions), *more

        run.around(run.trainer, "_generate_single_turn", sample)

    return plant


def _loop(completions: Tokens) -> Tokens:
    return [
        ([token for token in completion if token != _END][:3] * tiny.MAX_COMPLETION)[: tiny.MAX_COMPLETION]
        for completion in completions
    ]


looping = _sampled(_loop)
"""Completions say their beginning again and again, up to the limit."""
copied = _sampled(lambda completions: [completions[i - i % GROUP] for i in range(len(completions))])
"""All completions of a group are its first."""


def sampling(**settings: Any) -> Plant:
    """The sampler has other settings than the trainer thinks."""

    def plant(run: Run) -> None:
        def change() -> None:
            for name, value in settings.items():
                setattr(run.trainer.generation_config, name, value)

        run.begin(change)

    return plant


endless = sampling(suppress_tokens=[_END])
"""Completions never end."""


def half_greedy(run: Run) -> None:
    """top_k is 1 for half of the prompts."""
    config = run.trainer.generation_config

    def sample(method: Callable[..., Any], prompts: Tokens, *args: Any, **kwargs: Any) -> Any:
        usual, config.top_k = config.top_k, 1
        greedy, _ = method(prompts[: BATCH // 2], *args, **kwargs)
        config.top_k = usual
        completions, *more = method(prompts[BATCH // 2 :], *args, **kwargs)
        return [*greedy, *completions], *more

    run.around(run.trainer, "_generate_single_turn", sample)


def stale_sampler(run: Run) -> None:
    """The sampler has the first weights."""
    first = copy(run.policy)

    def sample(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with weights(run.policy, first):
            return method(*args, **kwargs)

    run.around(run.trainer, "_generate_single_turn", sample)


def other_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Plant:
    """In each step the sampler has the weights of the policy, each tensor changed."""

    def plant(run: Run) -> None:
        def sample(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with weights(run.policy, {name: change(weight) for name, weight in copy(run.policy).items()}):
                return method(*args, **kwargs)

        run.around(run.trainer, "_generate_single_turn", sample)

    return plant


def rounded(weight: torch.Tensor) -> torch.Tensor:
    """Quantise a tensor to seven levels."""
    step = weight.abs().max() / 3
    return (weight / step).round() * step if step else weight


def revised(weight: torch.Tensor) -> torch.Tensor:
    """Change a matrix as another training would."""
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).to(weight.device)
    return weight + 0.3 * float(weight.std()) * noise if weight.dim() > 1 else weight


# Advantages and loss


def advantages(change: Callable[[Any], Any]) -> Plant:
    """The advantages of a rollout are others."""

    def plant(run: Run) -> None:
        def score(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            output = method(*args, **kwargs)
            return {**output, "advantages": change(output["advantages"])}

        run.around(run.trainer, "_generate_and_score_completions", score)

    return plant


permuted = advantages(lambda each: each.view(-1, GROUP).roll(1, 1).reshape(-1))


def masked(change: Callable[[Any], Any]) -> Plant:
    """The loss gets another mask."""

    def plant(run: Run) -> None:
        def loss(method: Callable[..., Any], model: Any, inputs: Any) -> Any:
            return method(model, {**inputs, "completion_mask": change(inputs["completion_mask"])})

        run.around(run.trainer, "_compute_loss", loss)

    return plant


inverted = masked(lambda mask: 1 - mask)
all_ones = masked(torch.ones_like)


def stale_logprobs(run: Run) -> None:
    """The old log-probabilities are those of the policy some steps before the fault."""
    old: dict[str, Any] = {}
    run.when(run.at - 10, lambda: old.update(copy(run.policy)))

    def score(method: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        if model is not run.trainer.model or torch.is_grad_enabled():
            return method(model, *args, **kwargs)
        with weights(model, old):
            return method(model, *args, **kwargs)

    run.around(run.trainer, "_get_per_token_logps_and_entropies", score)


def beta(value: float) -> Plant:
    """The coefficient of the penalty is another."""
    return lambda run: run.begin(lambda: setattr(run.trainer, "beta", value))


# The rest


def unweighted(run: Run) -> None:
    """The weight of the first reward function becomes 0."""
    run.begin(lambda: run.trainer.reward_weights.copy_(torch.tensor([0.0, 1.0])))


def other_reference(run: Run) -> None:
    """The reference is another checkpoint than the policy begins with."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in run.trainer.ref_model.parameters():
            if weight.dim() > 1:
                noise = torch.randn(weight.shape, generator=generator).to(weight.device)
                weight.add_(noise, alpha=0.12 * float(weight.std()))


def dropout_in_reference(run: Run) -> None:
    """The reference is in training mode."""
    for module in run.trainer.ref_model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    run.trainer.ref_model.train()


def in_bf16(run: Run) -> None:
    """All weights are in bf16, where small updates are rounded away."""
    for model in (run.trainer.model, run.trainer.ref_model):
        model.to(torch.bfloat16)


def orphaned_adapter(run: Run) -> None:
    """A LoRA adapter is put around the policy, and its parameters are not in the optimizer."""
    import peft  # type: ignore[import-not-found,import-untyped,unused-ignore]

    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    create = run.trainer.create_optimizer

    def before_the_adapter(*args: Any, **kwargs: Any) -> Any:
        optimizer = create(*args, **kwargs)
        for group in optimizer.param_groups:
            group["params"] = [torch.nn.Parameter(each.detach().clone()) for each in group["params"]]
        return optimizer

    run.trainer.model = run.trainer.model_wrapped = peft.get_peft_model(run.trainer.model, config)
    run.trainer.create_optimizer = before_the_adapter
