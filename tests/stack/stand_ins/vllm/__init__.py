"""Stand-in for vLLM, which needs a GPU: what trl 1.16 calls of it, around a model of transformers on the CPU.

Sampling is real, from the weights that were pushed last; its log-probabilities are those of what it sampled from. With
STAND_IN_TEMPERATURE it samples at that temperature, whatever was asked for, as a server with a fault would.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

__version__ = "0.25.1"

_END = 1
"""The token that ends a completion, in the tokenizer of these tests."""


class SamplingParams:
    """How to sample: keyword arguments."""

    def __init__(self, **options: Any) -> None:
        self.n, self.temperature, self.max_tokens = 1, 1.0, 16
        vars(self).update(options)


@dataclass
class Logprob:
    """The log-probability of a token, and its place among those that were returned."""

    logprob: float
    rank: int = 1


@dataclass
class CompletionOutput:
    """One completion."""

    token_ids: list[int]
    logprobs: list[dict[int, Logprob]]


@dataclass
class RequestOutput:
    """The completions of one prompt."""

    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class LLM:
    """A model that samples."""

    def __init__(self, model: str, seed: int = 0, **_: Any) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(model).eval()
        self._random = torch.Generator().manual_seed(seed)
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self.load_weights))
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over weights by their names."""
        own = self.model.state_dict()
        for name, weight in weights:
            own[name].copy_(weight)

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], sampling_params: SamplingParams, use_tqdm: bool = True
    ) -> list[RequestOutput]:
        """Sample completions of each prompt."""
        return [
            RequestOutput(ids, [self._completion(ids, sampling_params) for _ in range(sampling_params.n)])
            for ids in (prompt["prompt_token_ids"] for prompt in prompts)
        ]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _completion(self, prompt: list[int], sampling: SamplingParams) -> CompletionOutput:
        told = float(os.environ.get("STAND_IN_TEMPERATURE", sampling.temperature))
        tokens: list[int] = []
        logprobs: list[dict[int, Logprob]] = []
        while len(tokens) < sampling.max_tokens and (not tokens or tokens[-1] != _END):
            logits = self.model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].float() / told
            each = logits.log_softmax(-1)
            token = int(torch.multinomial(each.exp(), 1, generator=self._random))
            tokens.append(token)
            logprobs.append({token: Logprob(float(each[token]))})
        return CompletionOutput(tokens, logprobs)

    def reset_prefix_cache(self) -> bool:
        """Do nothing: there is none."""
        return True

    def sleep(self, level: int = 1) -> None:
        """Do nothing."""

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Do nothing."""
