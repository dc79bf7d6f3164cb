"""A real GRPO training whose weights are sharded over ranks on the CPU (gloo); what each rank had goes to files.

    torchrun --nproc-per-node 2 -m tests.stack.sharded FOLDER {1,2} [--nan-on RANK] [--plain]

The number is FSDP's version. FOLDER/had-RANK.json: this rank's own part of the weights, its norm and a digest, what was
served of it, and how the training failed. With `--nan-on` one weight of that rank's part is NaN before step 3; with
`--plain` nothing is attached.

Accelerate shards on accelerators only. It is told that these ranks have some (`_as_on_accelerators`); all else is real.
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
FAULTY_STEP = 3


def _as_on_accelerators() -> None:
    original = AcceleratorState.__init__

    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        if not AcceleratorState._shared_state:
            PartialState(cpu=True)
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        original(self, *args, **kwargs)

    AcceleratorState.__init__ = told


def parts(model: Any) -> list[torch.Tensor]:
    """This rank's own part of each trained parameter."""
    own = [each.to_local() if hasattr(each, "to_local") else each for each in model.parameters() if each.requires_grad]
    return [each.detach() for each in own if each.numel()]


class Plant(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Makes one weight NaN before a step."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == FAULTY_STEP:
            with torch.no_grad():
                parts(model)[-1].view(-1)[0] = float("nan")


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("version", type=int)
    parser.add_argument("--nan-on", type=int, default=-1)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    _as_on_accelerators()
    sharding = {
        "version": options.version,
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
        "cpu_ram_efficient_loading": False,  # it would want a device
    }
    trainer = tiny.grpo(
        options.folder / str(RANK), fsdp="full_shard auto_wrap", fsdp_config=sharding, max_steps=4, num_iterations=2
    )
    if options.nan_on == RANK:
        trainer.add_callback(Plant())
    exporter = None if options.plain else rlexporter.attach(trainer, port=0, ranks="all", linger=0)
    failed = ""
    try:
        trainer.train()
    except RuntimeError as error:  # what had been seen until then is what is asked for
        failed = str(error)
    model = trainer.model_wrapped
    own = parts(model)
    norm = float(torch.stack([each.double().norm() for each in own]).norm())
    weights = hashlib.sha256(b"".join(each.contiguous().numpy().tobytes() for each in own)).hexdigest()
    had = {"norm": norm, "weights": weights, "sharded": type(next(iter(model.parameters()))).__name__, "failed": failed}
    if exporter is not None:
        had |= {"served": exporter.snapshot.value("rl_weight_norm"), "nonfinite": nonfinite(exporter)}
        had |= {"rank": exporter.snapshot.labels["rank"], "errors": errors(exporter)}
        had |= {"grad_norm": exporter.snapshot.value("rl_grad_norm")}
        exporter.close()
    (options.folder / f"had-{RANK}.json").write_text(json.dumps(had))


if __name__ == "__main__":
    main()
