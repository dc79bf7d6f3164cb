"""Real GRPO and RLOO trainers of a tiny vision-language model (LLaVA), made in the process with its processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import torch
from PIL import Image
from tokenizers import AddedToken
from transformers import (
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from trl import GRPOTrainer, RLOOTrainer

from rlexporter.demo import tiny as demo
from tests import tiny

_SIDE, _PATCH = 8, 4
"""Of an image, and of what becomes one token of it, in pixels: an image is 4 tokens."""
_IMAGE = "<image>"
_CHAT = (
    "{%- for message in messages -%}{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}<image>{%- else -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endfor -%}"
)
COLORS = ("red", "green", "blue", "white")


def processor() -> Any:
    """Return a processor of images of 8 x 8 pixels and text, with one token per character."""
    tokenizer = demo.tokenizer()
    tokenizer.add_tokens([AddedToken(_IMAGE, special=True)])
    size = {"height": _SIDE, "width": _SIDE}
    images = CLIPImageProcessorPil(size={"shortest_edge": _SIDE}, crop_size=size)
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_CHAT,
    )


def model(folder: Path) -> Any:
    """Return an untaught model, loaded from disk as its reference model will be."""
    torch.manual_seed(0)
    text = demo.config(hidden_size=16, layers=1)
    text.vocab_size += 1
    eye = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = CLIPVisionConfig(**eye, image_size=_SIDE, patch_size=_PATCH, projection_dim=16)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=text.vocab_size - 1)
    LlavaForConditionalGeneration(config).save_pretrained(folder / "tiny-llava")
    return LlavaForConditionalGeneration.from_pretrained(folder / "tiny-llava")


def letters(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    """Reward: how many letters are an o or later in the alphabet."""
    return [float(sum(letter >= "o" for letter in messages[0]["content"])) for messages in completions]


def trainer(folder: Path, *, kind: type[Any] = GRPOTrainer, **options: Any) -> Any:
    """A trainer: 4 completions a step, of at most 8 tokens, each of an image and a word."""
    callbacks = options.pop("callbacks", None)
    sampling = {"suppress_tokens": [demo.config(hidden_size=16, layers=1).vocab_size]}  # no image in a completion
    settings = {"num_generations": 2, "max_completion_length": 8, "beta": 0.04, "generation_kwargs": sampling}
    rows = {
        "prompt": [[{"role": "user", "content": COLORS[i % 4]}] for i in range(64)],
        "image": [Image.new("RGB", (_SIDE, _SIDE), COLORS[i % 4]) for i in range(64)],
    }
    return kind(
        model=model(folder),
        processing_class=processor(),
        reward_funcs=[letters],
        args=tiny.settings(folder, "RLOO" if issubclass(kind, RLOOTrainer) else "GRPO", **{**settings, **options}),
        train_dataset=datasets.Dataset.from_dict(rows),
        callbacks=callbacks,
    )
