"""A real GRPO or RLOO training whose weights are sharded over ranks on the CPU (gloo); files say what each rank had.

    torchrun --nproc-per-node 2 -m tests.stack.sharded FOLDER {fsdp2,zero1,zero2,zero3} [--kind RLOO] [--fp16]
        [--nan-on RANK] [--nan-at STEP] [--on-critical WORDS] [--plain]

FOLDER/had-RANK.json: the norm of this rank's own part of the weights and a digest of it, what was served, and how the
training failed. With `--nan-on` a weight of that rank's part is NaN before a step, the third if none is named; with
`--plain` there is no exporter.

With `--fp16` DeepSpeed computes in it, and begins with a scale at which the gradients overflow.

Accelerate shards on accelerators only: it is told that these ranks have some; and DeepSpeed, that this CPU can do fp16.
All else is real.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState  # type: ignore[import-untyped]
from transformers import TrainerCallback
from transformers.utils import logging

import rlexporter
from tests import tiny
from tests.served import errors, nonfinite

RANK = int(os.environ["RANK"])
SCALE = 40
"""The power of 2 with which a loss in fp16 is scaled at first: too much."""


def _as_on_accelerators() -> None:
    original = AcceleratorState.__init__

    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        if not AcceleratorState._shared_state:
            PartialState(cpu=True)
            PartialState._shared_state.update(distributed_type=DistributedType.MULTI_GPU, _cpu=False)
        original(self, *args, **{**kwargs, "cpu": False})
        PartialState._shared_state["distributed_type"] = self.distributed_type

    PartialState(cpu=True)
    AcceleratorState.__init__ = told


def _sharding(how: str, fp16: bool) -> dict[str, Any]:
    """Return the settings of transformers for it."""
    if how == "fsdp2":
        wrapped = {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
        return {"fsdp": "full_shard auto_wrap", "fsdp_config": {**wrapped, "cpu_ram_efficient_loading": False}}
    import deepspeed  # type: ignore[import-not-found,import-untyped,unused-ignore]

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    told = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    zero = {"stage": int(how.removeprefix("zero"))}
    zero["stage3_param_persistence_threshold"] = 0  # else ranks keep all of weights as small as these
    config = {**dict.fromkeys(told, "auto"), "zero_optimization": zero, "zero_allow_untested_optimizer": True}
    if fp16:
        deepspeed.get_accelerator().is_fp16_supported = lambda: True
        config["fp16"] = {"enabled": True, "initial_scale_power": SCALE, "hysteresis": 1}
    return {"deepspeed": config, "fp16": fp16}


def parts(model: Any) -> list[torch.Tensor]:
    """This rank's own part of each trained parameter."""
    own = [_own(each).detach() for each in model.parameters() if each.requires_grad]
    return [each for each in own if each.numel()]


def _own(parameter: Any) -> Any:
    if hasattr(parameter, "ds_tensor"):  # of ZeRO 3
        return parameter.ds_tensor
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


class Plant(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Makes one weight NaN before a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            with torch.no_grad():
                parts(model)[-1].view(-1)[0] = float("nan")


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("how", choices=["fsdp2", "zero1", "zero2", "zero3"])
    parser.add_argument("--kind", default="GRPO")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--nan-on", type=int, default=-1)
    parser.add_argument("--nan-at", type=int, default=3)
    parser.add_argument("--on-critical", default="")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    own_folder = options.folder / str(RANK)
    model = tiny.model(own_folder)  # while there are no ranks: else one alone would write it
    _as_on_accelerators()
    trainer = tiny.grpo(
        own_folder,
        kind=options.kind,
        model=model,
        **_sharding(options.how, options.fp16),
        max_steps=SCALE + 8 if options.fp16 else 4,
        num_iterations=2,
    )
    if options.nan_on == RANK:
        trainer.add_callback(Plant(options.nan_at))
    trainer.args.output_dir = str(options.folder / "trained")
    told: dict[str, Any] = {"port": 0, "ranks": "all", "linger": 0, "on_critical": options.on_critical}
    exporter = None if options.plain else rlexporter.attach(trainer, **told)
    failed = ""
    try:
        trainer.train()
    except RuntimeError as error:  # what had been seen until then is what is asked for
        failed = str(error)
    own = parts(trainer.model_wrapped)
    norm = float(torch.stack([each.double().norm() for each in own]).norm())
    weights = hashlib.sha256(b"".join(each.contiguous().numpy().tobytes() for each in own)).hexdigest()
    had = {"norm": norm, "weights": weights, "size": sum(each.numel() for each in own), "failed": failed}
    had["step"] = trainer.state.global_step
    had["skipped"] = getattr(trainer.model_wrapped, "skipped_steps", 0)
    if exporter is not None:
        buckets = {series.metric.series: found.count for series, found in exporter.snapshot.buckets.items()}
        lost = [s.labels for s in exporter.snapshot.samples if s.metric.series == "rl_signal_unavailable_info"]
        had |= {"served": exporter.snapshot.value("rl_weight_norm"), "nonfinite": nonfinite(exporter)}
        had |= {"rank": exporter.snapshot.labels["rank"], "errors": errors(exporter), "counts": buckets, "lost": lost}
        had |= {"stops": exporter.should_stop, "state": exporter.state.value}
        had |= {"grad_norm": exporter.snapshot.value("rl_grad_norm")}
        had |= {"counted_as_skipped": exporter.snapshot.value("rl_skipped_updates_total")}
        exporter.close()
    (options.folder / f"had-{RANK}.json").write_text(json.dumps(had))


if __name__ == "__main__":
    main()
