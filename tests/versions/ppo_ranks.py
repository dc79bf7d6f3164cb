"""A real training by modern PPO on several ranks on the CPU (gloo); files say what each rank had.

    torchrun --nproc-per-node 2 -m tests.versions.ppo_ranks FOLDER [--plain]
        [--on-critical WORDS] [--callback] [--nan-on RANK]

FOLDER/had-RANK.json: a digest of the weights, what was served, and beside it what the test counted itself. With
`--plain` there is no exporter; with `--callback` the trainer is given a callback, and nothing is attached.

With `--nan-on` a weight of that rank is NaN while it is looked at at the end of a step, and at no other time: nothing
else is disturbed by it, and no other rank can see it.
"""

from __future__ import annotations

import argparse
import functools
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
FAULTY_STEP = 2


class Planted(KeepingPPO):
    """Has a NaN in its weights from when it asks for the learning rate, which it logs, until it has been looked at."""

    def plant(self) -> None:
        """Begin."""
        self._ask, self.lr_scheduler.get_last_lr = self.lr_scheduler.get_last_lr, self._lose
        self._healthy: float | None = None

    def _lose(self) -> Any:
        if self.state.global_step + 1 == FAULTY_STEP:
            weights = self._weights()
            self._healthy, weights[0] = float(weights[0]), float("nan")
        return self._ask()

    def log(self, logs: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(self, "_healthy", None) is not None:
            self._weights()[0], self._healthy = self._healthy, None
        super().log(logs, *args, **kwargs)

    def _weights(self) -> Any:
        return next(self.model.parameters()).data.view(-1)


def main() -> None:
    """Train."""
    gc.freeze()  # this trainer collects garbage several times a step
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--on-critical", default="")
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--nan-on", type=int, default=-1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    told: dict[str, Any] = {"port": 0, "linger": 0, "on_critical": options.on_critical}
    ours = rlexporter.RLExporterCallback(**told) if options.callback else None
    kind = functools.partial(Planted, callbacks=[ours]) if ours else Planted
    trainer = ppo(options.folder / str(RANK), kind=kind, learning_rate=1e-2, steps=8, ddp_backend="gloo")
    trainer.args.output_dir = str(options.folder / "trained")
    kept = trainer.keep()
    if options.nan_on == RANK:
        trainer.plant()
    exporter = None if options.plain or ours else rlexporter.attach(trainer, **told)
    trainer.train()
    exporter = ours.exporter if ours else exporter
    weights = b"".join(each.detach().numpy().tobytes() for each in trainer.model.parameters())
    had: dict[str, Any] = {"weights": hashlib.sha256(weights).hexdigest(), "ranks": trainer.accelerator.num_processes}
    had |= {"steps": trainer.state.global_step, "stops": exporter.should_stop if exporter else None}
    if exporter is not None:
        had |= {"errors": errors(exporter), "nonfinite": nonfinite(exporter)}
    if exporter is not None and exporter._run.serves:
        served = {name: (bounds, counts) for name, bounds, counts in buckets(fetch(f"{exporter.url}/metrics")[1])}
        had |= {"served": {name: counts for name, (_, counts) in served.items()}}
        had |= {"counted": {name: kept.histogram(name, served[name][0]) for name in kept.values if name in served}}
        had |= {"kept": sorted(kept.values)}
        had |= {"rank": exporter.snapshot.labels["rank"], "step": exporter.snapshot.value("rl_step")}
        exporter.close()
    (options.folder / f"had-{RANK}.json").write_text(json.dumps(had))


if __name__ == "__main__":
    main()
