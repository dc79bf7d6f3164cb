"""Legacy PPO on several ranks on the CPU (gloo): the loop of a user who asks `should_stop` after each step.

    torchrun --nproc-per-node 2 -m tests.adapters.legacy_ranks FOLDER RANK

RANK alone loses a weight before its second step. FOLDER/had-RANK.json: what that rank was told after each step.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch

import rlexporter
from tests.adapters.legacy import Loop, make
from tests.served import errors

RANK = int(os.environ["RANK"])


def main(folder: Path, bad: int) -> None:
    """Train until it says to stop, six steps at most."""
    os.chdir(folder)
    trainer = make()
    exporter = rlexporter.attach(trainer, on_critical="save,stop", linger=0, port=0)
    asked: list[bool] = []

    def plant(trainer: Any, step: int) -> None:
        if len(asked) == 1 and bad == RANK:
            with torch.no_grad():
                trainer.accelerator.unwrap_model(trainer.model).v_head.summary.bias.fill_(math.nan)

    loop = Loop(trainer, plant=plant)
    while not any(asked) and len(asked) < 6:
        loop.run(1)
        asked.append(exporter.should_stop)
    exporter.end()
    had = {"asked": asked, "state": exporter._run.state.value, "errors": errors(exporter)}
    exporter.close()
    (folder / f"had-{RANK}.json").write_text(json.dumps(had))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
