"""A real training by modern PPO on several ranks on the CPU (gloo); files say what each rank had.

    torchrun --nproc-per-node 2 -m tests.versions.ppo_ranks FOLDER [--plain]

FOLDER/had-RANK.json: a digest of the weights, what was served, and beside it what the test counted itself. With
`--plain` there is no exporter.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import rlexporter
from tests.adapters.kept import buckets
from tests.conftest import fetch
from tests.served import errors, nonfinite
from tests.versions.ppo import KeepingPPO, ppo

RANK = int(os.environ["RANK"])


def main() -> None:
    """Train."""
    gc.freeze()  # this trainer collects garbage several times a step
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    trainer = ppo(options.folder / str(RANK), kind=KeepingPPO, learning_rate=1e-2, steps=8, ddp_backend="gloo")
    kept = trainer.keep()
    exporter = None if options.plain else rlexporter.attach(trainer, port=0, ranks="all", linger=0)
    trainer.train()
    weights = b"".join(each.detach().numpy().tobytes() for each in trainer.model.parameters())
    had: dict[str, Any] = {"weights": hashlib.sha256(weights).hexdigest(), "ranks": trainer.accelerator.num_processes}
    if exporter is not None:
        served = {name: (bounds, counts) for name, bounds, counts in buckets(fetch(f"{exporter.url}/metrics")[1])}
        had |= {"served": {name: counts for name, (_, counts) in served.items()}}
        had |= {"counted": {name: kept.histogram(name, served[name][0]) for name in kept.values if name in served}}
        had |= {"kept": sorted(kept.values), "errors": errors(exporter), "nonfinite": nonfinite(exporter)}
        had |= {"rank": exporter.snapshot.labels["rank"], "step": exporter.snapshot.value("rl_step")}
        exporter.close()
    (options.folder / f"had-{RANK}.json").write_text(json.dumps(had))


if __name__ == "__main__":
    main()
