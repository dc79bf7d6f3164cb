"""Legacy PPO: real trainers of trl 0.11 and earlier, the loop of a user, and an independent count of what they see.

What imports this is skipped where trl is newer; `make versions` runs it in environments with the old ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import trl
from accelerate.state import AcceleratorState  # type: ignore[import-untyped]
from transformers import LlamaForCausalLM

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from tests.adapters.kept import SavedState, buckets
from tests.conftest import fetch
from tests.served import nonfinite

if tuple(int(part) for part in trl.__version__.split(".")[:2]) >= (0, 12):
    pytest.skip(f"legacy PPO ended with trl 0.11, this is {trl.__version__}", allow_module_level=True)

BATCH = 8
TRAINER_TAPS = ("generate", "step", "compute_advantages", "loss", "record_step_stats")
ACCELERATOR_TAPS = ("backward", "log")
_E = tiny.tokenizer()("e")["input_ids"][0]
_COUNTED_AS = {f"rl_{name}_dist": f"rl_{name}" for name in ("loss", "policy_loss", "value_loss", "grad_norm")}


class Adam(torch.optim.Adam):  # type: ignore[misc] # torch is not checked
    """Keeps the norm of the gradients that it takes its steps with."""

    kept: SavedState | None = None

    def step(self, closure: Any = None) -> Any:
        if self.kept:
            gradients = [each.grad for group in self.param_groups for each in group["params"] if each.grad is not None]
            flat = np.concatenate([each.detach().double().numpy().ravel() for each in gradients])
            self.kept.add("rl_grad_norm_dist", [np.sqrt(np.sum(flat**2))])
        return super().step(closure)


class Keeping(trl.PPOTrainer):  # type: ignore[misc] # trl is not checked
    """Overrides on the class, as a user's subclass would have them; values are copied when they are there."""

    kept: SavedState

    def step(self, queries: Any, responses: Any, scores: Any, response_masks: Any = None) -> Any:
        self.kept.add("rl_reward_dist", [float(score) for score in scores])
        self.kept.add("rl_prompt_length_dist", [query.numel() for query in queries])
        self.kept.add("rl_completion_length_dist", [response.numel() for response in responses])
        return super().step(queries, responses, scores, response_masks)

    def compute_advantages(self, values: Any, rewards: Any, mask: Any) -> Any:
        masked, advantages, returns = super().compute_advantages(values, rewards, mask)
        self.kept.add("rl_value_dist", values, mask)
        self.kept.add("rl_advantage_dist", advantages, mask)
        self.kept.add("rl_return_dist", returns, mask)
        return masked, advantages, returns

    def loss(
        self,
        old_logprobs: Any,
        values: Any,
        logits: Any,
        vpreds: Any,
        logprobs: Any,
        mask: Any,
        advantages: Any,
        returns: Any,
    ) -> Any:
        policy, value, stats = super().loss(old_logprobs, values, logits, vpreds, logprobs, mask, advantages, returns)
        self.kept.add("rl_policy_ratio_dist", torch.exp(logprobs - old_logprobs), mask)
        self.kept.add("rl_policy_loss_dist", policy)
        self.kept.add("rl_value_loss_dist", value / self.config.vf_coef)
        self.kept.add("rl_loss_dist", policy + value)
        return policy, value, stats

    def record_step_stats(self, kl_coef: Any, **data: Any) -> Any:
        masks = data["masks"]
        self.kept.add("rl_kl_per_token_dist", data["kls"], masks)
        self.kept.add("rl_kl_per_sequence_dist", (data["kls"] * masks).sum(1))
        self.kept.add("rl_logprob_dist", data["logprobs"], masks)
        self.kept.add("rl_ref_logprob_dist", data["ref_logprobs"], masks)
        return super().record_step_stats(kl_coef, **data)


def make(kind: Any = trl.PPOTrainer, *, adapter: Any = None, dtype: Any = torch.float32, **options: Any) -> Any:
    """A policy with a value head, of 5,000 weights.

    ``adapter``: options of one that is trained in place of the policy, whose reference then is the policy without it.
    ``dtype``: of the weights.
    """
    if missing := options.keys() - {field.name for field in dataclasses.fields(trl.PPOConfig)}:
        pytest.skip(f"trl {trl.__version__} has no {missing}")
    AcceleratorState._reset_state(reset_partial_state=True)  # its precision is that of the first trainer, else
    models: list[Any] = []
    given = {} if adapter is None else {"peft_config": _lora(**adapter)}
    for _ in range(2 if adapter is None else 1):
        torch.manual_seed(1)
        made = LlamaForCausalLM(tiny.config(hidden_size=16, layers=1)).to(dtype)
        models.append(trl.AutoModelForCausalLMWithValueHead.from_pretrained(made, **given))
    settings = {"batch_size": BATCH, "mini_batch_size": 4, "ppo_epochs": 2, "learning_rate": 1e-2, **options}
    optimizer = Adam(models[0].parameters(), lr=settings["learning_rate"])
    policy, reference = (*models, None)[:2]
    trainer = kind(trl.PPOConfig(**settings), policy, reference, tiny.tokenizer(), optimizer=optimizer)
    if kind is Keeping:
        trainer.kept = optimizer.kept = SavedState()
    return trainer


def _lora(**options: Any) -> Any:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    targets = ["q_proj", "v_proj"]
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM", **options)


def letters(step: int, responses: list[Any]) -> list[Any]:
    """Reward: how many letters are an e, and a bit for a place in the batch, so that it is never the same."""
    return [(response == _E).sum().float() + 0.1 * i for i, response in enumerate(responses)]


class Loop:
    """The loop of a user.

    ``plant``: called between the rollout of a step and the step itself; ``masked``: every second token of a response is
    masked by the user; ``logged``: the user calls `log_stats()`.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        rewards: Callable[[int, list[Any]], list[Any]] = letters,
        plant: Callable[[Any, int], None] = lambda trainer, step: None,
        masked: bool = False,
        logged: bool = True,
    ) -> None:
        self.trainer, self.rewards, self.plant, self.masked, self.logged = trainer, rewards, plant, masked, logged
        self.exporter: Exporter | None = None
        self.after: dict[int, dict[str, float]] = {}
        self.stats: list[dict[str, Any]] = []
        self.scores: list[Any] = []

    def run(self, steps: int = 4) -> Loop:
        """Train; where a rollout fails because the weights are lost, stop."""
        generation = {"max_new_tokens": 8, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        if self.masked:  # responses are as long as their masks
            generation["min_new_tokens"] = 8
        masks = [torch.tensor([0, 1] * 4) for _ in range(BATCH)] if self.masked else None
        for step in range(1, steps + 1):
            queries = [torch.tensor(tiny.tokenizer()(text)["input_ids"]) for text in tiny.prompts(BATCH)]
            try:
                responses = self.trainer.generate(queries, return_prompt=False, **generation)
            except RuntimeError as error:
                if "probability tensor" in str(error):
                    break
                raise
            self.plant(self.trainer, step)
            scores = self.scores = self.rewards(step, responses)
            self.stats.append(self.trainer.step(queries, responses, scores, masks))
            if self.logged:
                self.trainer.log_stats(
                    self.stats[-1], {"query": tiny.prompts(BATCH), "response": list(map(str, range(BATCH)))}, scores
                )
            if self.exporter:
                self.after[step] = nonfinite(self.exporter)
        return self

    def began(self, metric: str) -> int:
        """The first step after which a metric had bad values."""
        return min((step for step, bad in self.after.items() if metric in bad), default=0)


def run(trainer: Any, steps: int = 4, **how: Any) -> tuple[Exporter, Loop]:
    """Attach and train; ``how``: that of `Loop`."""
    loop = Loop(trainer, **how)
    loop.exporter = rlexporter.attach(trainer)
    return loop.exporter, loop.run(steps)


def assert_equal(exporter: Exporter, kept: SavedState) -> None:
    """What a scrape says is what was kept: every bucket, and what is not finite."""
    _, text, _ = fetch(f"{exporter.url}/metrics")
    served = {name: (bounds, counts) for name, bounds, counts in buckets(text)}
    of_the_line = {"rl_policy_approxkl_dist", "rl_step_duration_seconds"}
    bad = nonfinite(exporter)

    assert set(served) - of_the_line == set(kept.values)
    for name in kept.values:
        bounds, counts = served[name]
        assert counts == kept.histogram(name, bounds), name
        assert bad.get(_COUNTED_AS.get(name, name), 0) == kept.nonfinite(name), name
