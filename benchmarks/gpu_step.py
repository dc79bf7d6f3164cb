"""What a training step of GRPO pays on a GPU: whole steps with and without us in turns, and our own counters."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import LlamaForCausalLM, TrainerCallback, set_seed

import rlexporter
from rlexporter.demo import tiny as words
from tests import tiny

_LAYERS, _HIDDEN = 24, 896
"""Those of a model of half a billion weights, without most of its words."""
_TOKENS, _BATCH, _STEPS, _ROUNDS, _WARM = 64, 32, 6, 4, 2
_PARTS = {"record": "rlexporter_record_seconds_total", "observe": "rlexporter_observe_seconds_total"}


class _Clock(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Times whole steps, from the end of one to the end of the next, when the GPU is done."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._at = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        torch.cuda.synchronize()
        now = time.perf_counter()
        if state.global_step > _WARM:
            self.steps.append(now - self._at)
        self._at = now


def rows() -> Iterator[str]:
    """The lines of a Markdown table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = words.config(hidden_size=_HIDDEN, layers=_LAYERS)
        shape.max_position_embeddings = 2 * _TOKENS
        LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder / "tiny-llama")
        model = LlamaForCausalLM.from_pretrained(folder / "tiny-llama", dtype=torch.bfloat16)
        weights = sum(each.numel() for each in model.parameters())
        pairs, ours, memory = [], [], []
        for _ in range(_ROUNDS):
            without, _, below = _trained(folder, model, watched=False)
            watched, counted, above = _trained(folder, model, watched=True)
            pairs.append((median(without), median(watched)))
            ours.append(counted)
            memory.append(above - below)
    yield f"\nA step of GRPO: {weights / 1e6:.0f} million weights in bf16, {_BATCH} completions of {_TOKENS} tokens;"
    yield f"medians of {_STEPS - _WARM} steps each.\n"
    yield "| without, ms | with, ms | difference, ms (each pair) | counted by us, ms | peak memory, MiB |"
    yield "|---" * 5 + "|"
    apart = ", ".join(f"{1e3 * (b - a):+.1f}" for a, b in pairs)
    yield (
        f"| {1e3 * median(a for a, _ in pairs):.0f} | {1e3 * median(b for _, b in pairs):.0f} | {apart} | "
        f"{1e3 * median(ours):.1f} | {median(memory) / 2**20:+.1f} |"
    )


def _trained(folder: Path, model: Any, *, watched: bool) -> tuple[list[float], float, int]:
    """The seconds of each step, those that our counters have of a step, and the peak of allocated memory."""
    set_seed(0)
    torch.cuda.reset_peak_memory_stats()
    clock = _Clock()
    trainer = tiny.grpo(
        folder,
        model=model,
        callbacks=[clock],
        bf16=True,
        max_steps=_STEPS,
        num_generations=8,
        per_device_train_batch_size=_BATCH,
        max_completion_length=_TOKENS,
        generation_kwargs={"min_new_tokens": _TOKENS},
    )
    exporter = rlexporter.attach(trainer, port=0) if watched else None
    trainer.train()
    counted = 0.0
    if exporter is not None:
        exporter.close()
        counted = sum(exporter.snapshot.value(series) or 0.0 for series in _PARTS.values()) / _STEPS
    return clock.steps, counted, torch.cuda.max_memory_allocated()
