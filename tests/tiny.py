"""Tiny real trainers for tests, made in the process; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

from rlexporter.demo import tiny

ON_GPU = os.environ.get("RLEXPORTER_TEST_DEVICE") == "cuda"
"""True where `make gpu` runs: trainers train there, and not on the CPU."""


def letters(completions: list[str], **_: Any) -> list[float]:
    """Reward: how many letters are an e."""
    return [float(text.count("e")) for text in completions]


def shortness(completions: list[str], **_: Any) -> list[float]:
    """Reward: shorter is better."""
    return [-len(text) / 10 for text in completions]


def model(folder: Path) -> Any:
    """An untaught model of 10,000 weights, loaded from disk as its reference model will be."""
    torch.manual_seed(0)
    LlamaForCausalLM(tiny.config(hidden_size=16, layers=1)).save_pretrained(folder / "tiny-llama")
    return LlamaForCausalLM.from_pretrained(folder / "tiny-llama")


def settings(folder: Path, kind: str, **options: Any) -> Any:
    """A configuration of TRL for a few steps, with its default names: on the CPU, or where `ON_GPU` says."""
    return getattr(trl, f"{kind}Config")(
        **{
            "output_dir": str(folder / "trainer_output"),
            "max_steps": 4,
            "use_cpu": not ON_GPU,
            "bf16": False,
            "per_device_train_batch_size": 4,
            "per_device_eval_batch_size": 4,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "gradient_checkpointing": False,
            **options,
        }
    )


def grpo(folder: Path, *, kind: str = "GRPO", rewards: Any = (letters, shortness), **options: Any) -> Any:
    """A real GRPO or RLOO trainer: 4 completions a step, of at most 8 tokens.

    ``model``: not an untaught one; ``peft_config``: the adapter that it gets.
    """
    callbacks = options.pop("callbacks", None)
    taught = options.pop("model", None)
    adapter = {"peft_config": options.pop("peft_config")} if "peft_config" in options else {}
    options = {"num_generations": 2, "max_completion_length": 8, "beta": 0.04, **options}
    return getattr(trl, f"{kind}Trainer")(
        model=model(folder) if taught is None else taught,
        processing_class=tiny.tokenizer(),
        reward_funcs=list(rewards),
        args=settings(folder, kind, **options),
        train_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(64)}),
        eval_dataset=datasets.Dataset.from_dict({"prompt": tiny.prompts(4)}),
        callbacks=callbacks,
        **adapter,
    )


def plain(folder: Path, **options: Any) -> Any:
    """A plain transformers Trainer that learns to copy."""
    ids = [[2, 3, 4, 5, 1]] * 16
    settings = {
        "output_dir": str(folder / "plain"),
        "max_steps": 3,
        "use_cpu": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **options,
    }
    return Trainer(
        model=model(folder),
        args=TrainingArguments(**settings),
        train_dataset=datasets.Dataset.from_dict({"input_ids": ids, "labels": ids}),
        eval_dataset=datasets.Dataset.from_dict({"input_ids": ids[:4], "labels": ids[:4]}),
    )
