"""A real GRPO training as a process of its own, for tests that end it in some way.

    python -m tests.e2e.training FOLDER PORT HOW [--seconds N] [--resume] [--fault KIND] [--stalled SECONDS] ...

HOW: what happens when `--seconds` are over: `end` (enough steps), `raise`, `exit` (sys.exit in a reward function),
`wait` (goes on until a signal comes), `caught` (as wait, inside `try: ... except KeyboardInterrupt`). Each log line
goes to FOLDER/log.jsonl, with its step. While there is a file FOLDER/hold, it waits between two steps, and says so by
FOLDER/held. KIND is one of `tests.e2e.faults.KINDS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.utils import logging

import rlexporter
from tests import tiny
from tests.e2e.faults import KINDS, Fault

FEWEST_STEPS = 6
"""Steps that are made in any case: a busy machine may need all of the time for the first one."""


class Journal(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """Keeps what was logged, and ends the training when its time is over."""

    def __init__(self, file: Path, until: float) -> None:
        self._file = file
        self._until = until

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "reward" in logs:
            with self._file.open("a") as out:
                out.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        control.should_training_stop |= state.global_step > FEWEST_STEPS and time.monotonic() > self._until


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("how", choices=["end", "raise", "exit", "wait", "caught"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--fault", default="", choices=KINDS)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.2)
    parser.add_argument("--stalled", type=float)
    parser.add_argument("--labels")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options.folder.mkdir(parents=True, exist_ok=True)
    over = time.monotonic() + options.seconds
    forever = options.how in ("wait", "caught")

    fault = Fault(options.fault, options.folder)
    calls: list[float] = []

    def paced(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        time.sleep(options.pace)
        calls.append(time.monotonic())
        while (options.folder / "hold").exists():
            (options.folder / "held").touch()
            time.sleep(1)
        if options.how != "end" and not forever and len(calls) > FEWEST_STEPS and calls[-1] > over:
            sys.exit(3) if options.how == "exit" else _raise()
        asked = trainer.processing_class(prompts)["input_ids"]
        sampled = [[*prompt, *answer] for prompt, answer in zip(asked, completion_ids, strict=True)]
        return fault.rewards(_varied(completions), sampled)

    trainer = tiny.grpo(
        options.folder,
        rewards=[paced],
        max_steps=100_000,
        save_strategy="steps",
        save_steps=5,
        num_iterations=options.iterations,
        callbacks=[Journal(options.folder / "log.jsonl", over if options.how == "end" else float("inf")), fault],
    )
    thresholds = {"run_stalled": options.stalled} if options.stalled else None
    exporter = rlexporter.attach(trainer, port=options.port, labels=options.labels, thresholds=thresholds)
    print(exporter.name, flush=True)
    try:
        trainer.train(resume_from_checkpoint=True if options.resume else None)
    except KeyboardInterrupt:
        if options.how != "caught":
            raise
        print("caught", flush=True)


def _varied(completions: list[str]) -> list[float]:
    """Hardly ever the same for two completions: a run whose rewards do not differ is sick."""
    return [sum(map(ord, text)) / 100 for text in completions]


def _raise() -> None:
    raise ValueError("the verifier is down")


if __name__ == "__main__":
    main()
