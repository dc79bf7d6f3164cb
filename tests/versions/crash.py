"""A PPO run whose value loss is NaN in one update, and whose process dies of it in the next sampling."""

from __future__ import annotations

import gc
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import rlexporter
from tests.versions.ppo import ppo

STEPS, FAULT = 14, 12


class Slowly(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Two seconds a step, for a server that comes every 15; the fault comes after step 11."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(2)
        if state.global_step == FAULT - 1:
            with torch.no_grad():
                kwargs["model"].value_model.score.weight.fill_(math.nan)


def main(folder: str, port: str) -> None:
    """Train until it crashes."""
    gc.freeze()  # this trainer collects garbage several times a step
    trainer = ppo(Path(folder), steps=STEPS)
    trainer.add_callback(Slowly())
    rlexporter.attach(trainer, port=int(port), run="crash")
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
