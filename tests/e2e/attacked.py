"""A loop of one's own that logs and observes whatever comes to mind, until it is told to end, for test_attacks.py.

    python -m tests.e2e.attacked PORT SEED HOW FOLDER

HOW it ends: `with`, `raise`, `exit`, `signal` or `none`. It ends once there is a file FOLDER/end. FOLDER/told.json then
has what has raised, the last step and the memory of a quarter of its time and of the end, in bytes. A signal handler
(SIGUSR1) logs as well.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlexporter import Exporter


class Bad:
    """An object whose every method raises."""

    def __float__(self) -> float:
        raise OverflowError("no number")

    def __str__(self) -> str:
        raise ValueError("no text")

    def __len__(self) -> int:
        raise RuntimeError("no length")


VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.gauss(0, 1),
    lambda rng: rng.choice([math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324]),
    lambda rng: rng.choice([10**400, -(10**400), 2**63, True, None, "text", b"bytes", "", 1j]),
    lambda rng: rng.choice([Decimal("NaN"), Decimal("1e999"), Bad(), object(), {"a": 1}, {1, 2}, lambda: 1]),
    lambda rng: [rng.random() for _ in range(rng.randrange(50))],
    lambda rng: [[[rng.random()]], "x", None],
    lambda rng: np.array([rng.random() for _ in range(rng.randrange(5))], rng.choice(["f2", "f4", "f8", "i4", "?"])),
    lambda rng: np.array(["a", None], dtype=object),
    lambda rng: torch.randn(rng.randrange(4), rng.randrange(4)).to(rng.choice([torch.float32, torch.bfloat16])),
    lambda rng: torch.tensor(rng.choice([math.nan, math.inf, 0.5]), requires_grad=True),
    lambda rng: torch.empty(3, device="meta"),
    lambda rng: torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (3,)),
)
KEYS = (
    "reward",
    "loss",
    "kl",
    "grad_norm",
    "entropy",
    "eval_loss",
    "rewards/f/mean",
    "mine",
    "",
    "é",
    "a\n{b}",
    7,
    Bad(),
)
STEPS = (None, None, None, math.nan, math.inf, "seven", -1, 2**60, 10**400)


def memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(port: str, seed: str, how: str, folder: str) -> None:
    """Live, and end."""
    rng, end, told = random.Random(int(seed)), Path(folder) / "end", Path(folder) / "told.json"
    exporter = Exporter(run="r", algorithm="grpo", port=int(port), record=f"{folder}/run.jsonl")
    raised: list[str] = []
    memories: list[int] = []

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            raised.append(repr(error))

    signal.signal(signal.SIGUSR1, lambda *_: attempt(lambda: exporter.log({"reward": 0.5})))

    def live() -> None:
        while not end.exists():
            line = {rng.choice(KEYS): rng.choice(VALUES)(rng) for _ in range(rng.randrange(8))}
            attempt(lambda line=line: exporter.log(line, step=rng.choice(STEPS)))  # type: ignore[misc, arg-type]
            name = rng.choice(["policy_ratio", "kl_per_token", "reward", "nothing"])
            value, mask = rng.choice(VALUES)(rng), rng.choice([None, None, rng.choice(VALUES)(rng)])
            attempt(lambda v=value, m=mask, n=name: exporter.observe(n, v, m))  # type: ignore[misc]
            time.sleep(0.002)
            if len(memories) < 10_000:
                memories.append(memory())
        exporter.log({"reward": 42.0})
        quarter = memories[len(memories) // 4]
        last = exporter.snapshot.value("rl_step")
        told.write_text(
            json.dumps({"raised": raised, "step": last, "grown": memory() - quarter, "lines": len(memories)})
        )

    if how in ("with", "raise"):
        with exporter:
            live()
            if how == "raise":
                raise ValueError("dead")
    else:
        exporter.start()
        live()
        if how == "exit":
            sys.exit(3)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
