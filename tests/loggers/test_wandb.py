"""W&B, offline: what is served is what W&B wrote into its own file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.loggers.watched import no_errors, run

pytest.importorskip("wandb")

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}

PARTS = """
import wandb, numpy as np
wandb.init(project="p", name="mine", config={"learning_rate": 1e-4, "beta": 0.05, "note": "text"})
for step in range(4):
    wandb.log({"loss": 0.5 + step, "objective/kl_dist": wandb.Histogram([0.1, 0.2, 5.0])}, commit=False)
    wandb.log({"grad_norm": 1.0 + step, "note": "text"}, commit=False)
    wandb.log({"reward": 0.25 * step, "mine": {"deep": {"er": 2.0 + step}}, "objective/kl": np.float32(1.5)})
wandb.log({"only": "text"})
wandb.finish()
"""
STEPS = """
import wandb
run = wandb.init(project="p", name="mine")
for step in (10, 20, 30):
    run.log({"loss": 0.5 + step}, step=step)
    run.log({"loss": 0.75 + step, "reward": 1.0 * step}, step=step)
for wrong in (["no mapping"], {1: 2.0}):
    try:
        wandb.log(wrong)
    except TypeError as error:
        print(type(error).__name__, error)
run.finish(exit_code=3)
"""
NAMED = """
import wandb
wandb.init(project="p", name="mine")
for step in (7, 8, 9):
    wandb.log({"loss": 1.0 * step, "train/global_step": step})
    wandb.log({"rollout": 2.0 * step})
wandb.finish()
"""


def _history(folder: Path) -> list[dict[str, Any]]:
    """The lines in W&B's own file: protocol buffers in records as LevelDB's log has them, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2  # type: ignore[import-not-found] # not in the environment of mypy

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, part, lines = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            part = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                lines.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return lines


def test_parts_of_a_step_are_one_line(tmp_path: Path) -> None:
    """`commit=False` waits for the rest; texts are no step; a histogram is counted from what it was made of."""
    done = run(PARTS, tmp_path, "--from", "wandb", **OFFLINE)
    lines = _history(tmp_path)

    assert no_errors(done)
    assert done.runs == {"mine"}
    last = lines[3]
    assert (done["rl_step"], done["rl_steps_total"]) == (last["_step"], 4) == (3, 4)
    served = {name: done[name] for name in ("rl_loss", "rl_reward_mean", "rl_grad_norm", "rl_kl_per_sequence")}
    assert served == {
        "rl_loss": last["loss"],
        "rl_reward_mean": last["reward"],
        "rl_grad_norm": last["grad_norm"],
        "rl_kl_per_sequence": last["objective/kl"],
    }
    assert done["rl_loss"] == 3.5
    assert done.logged() == {"mine.deep.er": 5.0} == {"mine.deep.er": last["mine.deep.er"]}
    assert done.counts("rl_loss_dist", "+Inf") == [4]
    assert done.counts("rl_kl_per_sequence_dist", 0.01, 0.1, 0.5, 2.0, 5.0) == [0, 4, 8, 8, 12]
    assert done.settings()["beta"] == 0.05
    assert done.served["rl_run_state", "finished"] == 1


def test_steps_that_are_given(tmp_path: Path) -> None:
    """W&B keeps the last of two values in a step, and so do we: each step counts once.

    What it refuses, it refuses as ever, and that is no line; a run that says it failed has failed.
    """
    done = run(STEPS, tmp_path, "--from", "wandb", **OFFLINE)

    assert no_errors(done)
    assert [line["loss"] for line in _history(tmp_path)] == [10.75, 20.75, 30.75]
    assert (done["rl_step"], done["rl_loss"], done["rl_reward_mean"]) == (30, 30.75, 30)
    assert done.counts("rl_loss_dist", "+Inf") == [3]
    assert done.printed.split("\n")[:2] == [
        "TypeError wandb.log must be passed a dictionary",
        "TypeError Key values passed to `wandb.log` must be strings.",
    ]
    assert done.served["rl_run_state", "failed"] == 1


def test_a_line_that_names_its_step(tmp_path: Path) -> None:
    """W&B's own step counts calls; lines without a name belong to the step that was named last."""
    done = run(NAMED, tmp_path, "--from", "wandb", **OFFLINE)

    assert no_errors(done)
    assert [line["_step"] for line in _history(tmp_path)] == [0, 1, 2, 3, 4, 5]
    assert (done["rl_step"], done["rl_steps_total"], done["rl_loss"]) == (9, 3, 9)
    assert done.logged()["rollout"] == 18


def test_nobody_asked(tmp_path: Path) -> None:
    """Without --from nothing of W&B is watched."""
    done = run(STEPS, tmp_path, **OFFLINE)
    assert (done.status, done.served) == (0, {})
    assert "rlexporter" not in done.errors
