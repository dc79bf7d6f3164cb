"""A tiny model that writes letters, which ms-swift and Unsloth train in scripts, and what is served meanwhile."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def save(folder: Path, *special: str) -> Any:
    """Write an untaught model and its tokenizer, with these special tokens, into ``folder``; return the tokenizer."""
    letters = {letter: i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}
    text = Tokenizer(models.BPE(vocab=letters, merges=[]))
    text.pre_tokenizer, text.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=text, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": [*special]})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return tokenizer


def scrape(folder: Path, step: int) -> None:
    """Keep what is served after a step, as `served-1.txt`, where anything is served."""
    if step and "RLEXPORTER_LISTEN_PORT" in os.environ:
        at = "http://127.0.0.1:" + os.environ["RLEXPORTER_LISTEN_PORT"] + "/metrics"
        (folder / f"served-{step}.txt").write_bytes(urllib.request.urlopen(at, timeout=600).read())
