"""A tiny language model, built and taught in this process: it writes short words and knows when to stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = (
    "able acid also area baby back ball band bank base bath bean bear bell best bird blue boat body bone book both "
    "call calm card care cell city club coal coat code cold cool deal deep dish door duck dust each earth east edge "
    "else face fact farm fast fine fire fish five food free game gate gift girl glad gold good hand hard heat help "
    "high hill home hope idea iron item join jump keep kind king lake land last late lead leaf life line lion list "
    "long love main make map meal milk mind moon near neck nest news nice noon note ocean open oval page pair park "
    "path plan pond rain read rice ring road rock room rose safe sail salt sand seed ship shoe side silk sing snow "
    "soft song star stone sun tale tall team tent time tree true vast view wall warm wave west wind wise wood yard"
).split()
LETTERS = "aeionrst"
MAX_COMPLETION = 24
TARGET_LENGTH = 10

END = "<eos>"
_PAD = "<pad>"
_ALPHABET = (_PAD, END, *" :abcdefghijklmnopqrstuvwxyz")


def prompts(count: int) -> list[str]:
    """Return ``count`` prompts that ask for a letter: `e:`."""
    return [f"{LETTERS[i % len(LETTERS)]}:" for i in range(count)]


def letter_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Return, for each completion, 1 for three of the letter asked for, less for fewer."""
    return [min(text.count(prompt[0]) / 3, 1.0) for prompt, text in zip(prompts, completions, strict=True)]


def length_reward(completions: list[str], **_: Any) -> list[float]:
    """Return, for each completion, 1 for ten characters, less the further away."""
    return [max(0.0, 1 - abs(len(text) - TARGET_LENGTH) / TARGET_LENGTH) for text in completions]


REWARDS = (letter_reward, length_reward)


def token(text: str) -> int:
    """Return the number of a token: a letter, or `END`."""
    return _ALPHABET.index(text)


def tokenizer() -> Any:
    """Return a tokenizer with one token per character."""
    raw = Tokenizer(WordLevel({token: i for i, token in enumerate(_ALPHABET)}, unk_token=_PAD))
    raw.pre_tokenizer = Split(Regex("."), "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=_PAD, eos_token=END, padding_side="left")


def config(*, hidden_size: int, layers: int) -> Any:
    """Return the configuration of a Llama with this width and depth, for the alphabet of `tokenizer`."""
    return LlamaConfig(
        vocab_size=len(_ALPHABET),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )


def model(folder: Path, seed: int, progress: Callable[[int, int], None], steps: int = 240) -> Any:
    """Return the model, taught for ``steps`` steps to write two or three words after a prompt.

    It is saved to and loaded from ``folder``, since the trainers load their reference model from the same place.
    """
    torch.manual_seed(seed)
    taught = LlamaForCausalLM(config(hidden_size=48, layers=2))
    optimizer = torch.optim.AdamW(taught.parameters(), lr=6e-3)
    words = random.Random(seed)  # noqa: S311 - no secret
    for step in range(steps):
        tokens = _texts(words, 64)
        loss = taught(input_ids=tokens, labels=tokens.masked_fill(tokens == 0, -100)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress(step + 1, steps)
    taught.save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


def _texts(words: random.Random, count: int) -> torch.Tensor:
    ids = {token: i for i, token in enumerate(_ALPHABET)}
    rows = []
    for _ in range(count):
        text = f"{words.choice(LETTERS)}:{' '.join(words.choices(WORDS, k=words.choice((2, 2, 3))))}"
        rows.append([ids[character] for character in text] + [ids[END]])
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])
