"""Real GRPO trainers whose completions hold tokens that the policy did not sample: a tool's, or an environment's.

The tiny model writes letters at random. A chat template and a template of responses read calls of a tool out of them:
each letter from a to m begins one. A colon, which the model never samples, opens and closes what comes from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import torch
from trl import GRPOTrainer

from rlexporter.demo import tiny as demo
from tests import tiny
from tests.adapters.independent import Keeping

COLON = demo.token(":")
_CHAT = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}:{%- endif -%}"
    "{{ message.content | replace(':', ' ') }}"
    "{%- for call in message.tool_calls or [] -%}{{ call.function.name }}{{ call.function.arguments }}{%- endfor -%}"
    "<eos>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}:{%- endif -%}"
)
_RESPONSES = {
    "defaults": {"role": "assistant"},
    "start_anchor": ":",
    "fields": {
        "tool_calls": {
            "open_pattern": "[a-m]",
            "close_pattern": "[n-z]|<eos>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "look", "arguments": {"word": "{content}"}}},
        },
        "content": {"close_pattern": "<eos>", "content": "text"},
    },
}


def look(word: str) -> str:
    """
    Look a word up.

    Args:
        word: The word.
    """
    if not word:
        raise ValueError("no word")
    return f"seen {word}"


class Room:
    """An environment: its methods are tools, and it says itself what a conversation was worth."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def reset(self, **_: Any) -> str:
        """Begin anew, and return what is to be seen."""
        self.words = []
        return "door"

    def look(self, word: str) -> str:
        """
        Look around.

        Args:
            word: What for.
        """
        self.words.append(word)
        return look(word)

    def get_reward(self) -> float:
        """Return how long the words were on average."""
        return sum(map(len, self.words)) / (len(self.words) or 1)


def letters(completions: list[list[dict[str, Any]]], **_: Any) -> list[float]:
    """Reward: how many letters of all that the assistant says and calls are an o or later in the alphabet."""
    said = [
        "".join(str(each["content"]) for each in messages if each["role"] == "assistant") for messages in completions
    ]
    return [float(sum(letter >= "o" for letter in text)) for text in said]


def rollout(prompts: list[list[dict[str, str]]], trainer: Any) -> dict[str, Any]:
    """Two turns of the policy, with an answer of an environment between them."""
    first = trainer.processing_class.apply_chat_template(prompts, add_generation_prompt=True, return_dict=False)
    begun, _ = trainer._generate_single_turn(first, None, {}, 1)
    answer = trainer.processing_class(":wait:")["input_ids"]
    asked = [prompt + said + answer for prompt, said in zip(first, begun, strict=True)]
    ended, _ = trainer._generate_single_turn(asked, None, {}, 1)
    return {
        "prompt_ids": first,
        "completion_ids": [one + answer + other for one, other in zip(begun, ended, strict=True)],
        "env_mask": [
            [1] * len(one) + [0] * len(answer) + [1] * len(other) for one, other in zip(begun, ended, strict=True)
        ],
        "logprobs": None,
    }


class KeepingGRPO(Keeping, GRPOTrainer):  # type: ignore[misc] # trl is not checked
    """Finds what the policy sampled by the colons around all else, and not by any mask of tools or environments."""

    outside = 0
    """How many tokens were found that it did not sample; each as often as it was looked at."""

    def _counted(self, batch: Any) -> Any:
        sampled = torch.tensor([_sampled(row) for row in batch["completion_ids"].tolist()])
        self.outside += int((batch["completion_mask"] * (1 - sampled)).sum())
        return batch["completion_mask"] * sampled


def _sampled(tokens: list[int]) -> list[int]:
    """Return 1 for each of a completion's ``tokens`` that is not between two colons, nor one of them."""
    found, outside = [], False
    for token in tokens:
        opens_or_closes = token == COLON
        found.append(int(not outside and not opens_or_closes))
        outside ^= opens_or_closes
    return found


def tokenizer() -> Any:
    """Return one with templates for conversations and tools."""
    made = demo.tokenizer()
    made.chat_template, made.response_template = _CHAT, _RESPONSES
    return made


def grpo(folder: Path, *, rewards: Any = (letters,), **options: Any) -> Any:
    """A trainer for conversations: 4 completions a step, of at most 32 tokens, with what comes from outside.

    ``options``: ``tools``, ``environment_factory`` and ``rollout_func`` of the trainer, and settings.
    """
    given = {name: options.pop(name) for name in ("tools", "environment_factory", "rollout_func") if name in options}
    callbacks = options.pop("callbacks", None)
    sampling = {"suppress_tokens": [0, COLON], "exponential_decay_length_penalty": (2, 1.3)}
    settings = {"num_generations": 2, "max_completion_length": 32, "beta": 0.04, "generation_kwargs": sampling}
    rows = {"prompt": [[{"role": "user", "content": text.rstrip(":")}] for text in demo.prompts(64)]}
    return GRPOTrainer(
        model=tiny.model(folder),
        processing_class=tokenizer(),
        reward_funcs=list(rewards),
        args=tiny.settings(folder, "GRPO", **{**settings, **options}),
        train_dataset=datasets.Dataset.from_dict(rows),
        callbacks=callbacks,
        **given,
    )
